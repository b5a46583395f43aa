"""`aliquot server`."""

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import msgspec

from aliquot import logs
from aliquot.app.configured import Configured, given, keys
from aliquot.app.options import SETTINGS, option
from aliquot.app.running import run_until_stopped
from aliquot.app.server.listening import certificates
from aliquot.app.server.serving import serve
from aliquot.config import Configuration, File, Given, Live, Map, Nothing, meaning, showing
from aliquot.config.checking import doubts
from aliquot.config.tree import Kubernetes
from aliquot.config.variables import strangers
from aliquot.control.decision_log.file import require_writable
from aliquot.errors import BadConfig
from aliquot.kube import Client


@keys
@click.command(cls=Configured, context_settings=SETTINGS)
@option("--config", metavar="FILE", help="A YAML file with the keys below; changes are seen within a second or two.")
@option(
    "--config-map", metavar="NAMESPACE/NAME", help="A ConfigMap whose entry config.yaml is such a file, watched live."
)
@click.option(
    "--check-config", is_flag=True, help="Check it, print what is in effect and who said so, and end: 0 good, 1 not."
)
@click.pass_context
def command(ctx: click.Context, /, config: str | None, config_map: str | None, check_config: bool, **_: Any) -> None:
    """Run the control plane: answer kube-scheduler's extender calls and keep the cluster state.

    \b
    Point kube-scheduler at it (KubeSchedulerConfiguration):
      extenders:
      - urlPrefix: http://ADDRESS:12345/gpushare-scheduler
        filterVerb: filter
        bindVerb: bind
        nodeCacheCapable: true
        managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]

    GET :12340/readyz answers 200 when its answers can be trusted, and says why not otherwise; /metrics is there, too.
    Any number of servers may run: one holds the Lease and decides, the others pass calls on to it.

    Every option is also an environment variable and a key of the configuration file. A flag counts before a variable,
    that before the file or ConfigMap, and that before the default. docs/configuration.md lists all keys.
    """
    run_until_stopped(_start(ctx, config, config_map, check_only=check_config))


async def _start(ctx: click.Context, config: str | None, config_map: str | None, *, check_only: bool) -> None:
    if config and config_map:
        raise BadConfig("--config and --config-map are two places for one configuration; give one of them")
    said = given(ctx)
    async with AsyncExitStack() as stack:

        async def client(kubernetes: Kubernetes) -> Client:
            return await stack.enter_async_context(Client(meaning.access(kubernetes)))

        if config_map:
            logs.configure()
            reaching = await client(_given_access(said))
            live = await Live.start(Map(config_map, reaching), said)
        else:
            live = await Live.start(File(config) if config else Nothing(), said)
        if check_only:
            _check(live.tree)
            click.echo(showing.effective(live.effective))
            return
        kubernetes = _given_access(said) if config_map else live.tree.kubernetes
        await serve(live, kubernetes, reaching if config_map else await client(kubernetes))


def _check(tree: Configuration) -> None:
    """What a start would find, and what it would only say. Raises BadConfig."""
    if tree.decision_log.file:
        require_writable(Path(tree.decision_log.file))
    certificates(tree)
    for doubt in (*doubts(tree), *strangers(os.environ)):
        click.echo(f"aliquot: warning: {doubt}", err=True)


def _given_access(said: Mapping[str, Given]) -> Kubernetes:
    """How to reach a ConfigMap: only flags and variables can tell."""
    section = "kubernetes."
    values = {path.removeprefix(section): one.value for path, one in said.items() if path.startswith(section)}
    return msgspec.convert(values, Kubernetes)
