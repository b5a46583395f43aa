"""`aliquot server`."""

from typing import Any

import click

from aliquot.app.running import reporting_errors, run_until_stopped
from aliquot.app.server.start import start
from aliquot.cli.options import CONTEXT, option
from aliquot.config.flags import ConfiguredCommand, given, with_keys
from aliquot.config.server import SERVER


@with_keys(SERVER.settings)
@click.command(cls=ConfiguredCommand, context_settings=CONTEXT)
@option(
    "--config",
    metavar="FILE",
    help="A YAML file with the keys of docs/configuration.md. Changes apply within two seconds.",
)
@option("--config-map", metavar="NAMESPACE/NAME", help="A ConfigMap whose key config.yaml holds such a file.")
@click.option(
    "--check-config",
    is_flag=True,
    help="Check the configuration, print each value and its source, and exit with 0 if it is valid, else 1.",
)
@click.pass_context
def command(ctx: click.Context, /, config: str | None, config_map: str | None, check_config: bool, **_: Any) -> None:
    """Run the control plane: answer kube-scheduler's extender calls and keep the cluster state.

    \b
    Configure kube-scheduler to call it (KubeSchedulerConfiguration):
      extenders:
      - urlPrefix: http://ADDRESS:12345/gpushare-scheduler
        filterVerb: filter
        prioritizeVerb: prioritize
        bindVerb: bind
        weight: 1000
        nodeCacheCapable: true
        managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]

    GET :12341/readyz returns 200 when the server's answers can be trusted, and otherwise the reason. The same port
    serves /metrics. You can run several servers: the holder of the Lease decides, and the others forward calls to it.

    You can set every option as a flag, as an environment variable, or as a key of the configuration file. A flag
    overrides a variable, a variable overrides the file or ConfigMap, and these override the default.
    docs/configuration.md lists all keys.
    """
    with reporting_errors(1):
        keys = given(ctx)
    run_until_stopped(start(keys, config, config_map, check_only=check_config))
