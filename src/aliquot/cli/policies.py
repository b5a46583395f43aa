"""`aliquot policies`."""

import click

from aliquot.app.policies import policies_yaml
from aliquot.app.running import reporting_errors
from aliquot.cli.options import CONTEXT, NamespaceName, option
from aliquot.config.flags import pairs
from aliquot.control.admission import ACTIONS, NAMESPACE
from aliquot.dialects import make_dialects

_PREFIX = "DIALECT=PREFIX"


@click.command(context_settings=CONTEXT)
@option(
    "--prefix",
    metavar=_PREFIX,
    multiple=True,
    help="Another prefix for a dialect's names, such as tencent=gpu.example.com. May be repeated.",
)
@option("--namespace", default=NAMESPACE, type=NamespaceName(), help="Namespace of Aliquot's ConfigMaps.")
@option(
    "--enforce",
    default="Warn,Audit",
    type=click.Choice(list(ACTIONS)),
    help="What happens when a user writes a placement. The other policies always deny.",
)
def command(prefix: tuple[str, ...], namespace: str, enforce: str) -> None:
    """Print the admission policies that protect placements, as YAML for kubectl.

    \b
      aliquot policies | kubectl apply -f -
      aliquot policies --enforce Deny | kubectl apply -f -

    The policies need Kubernetes 1.30 or later. Give the same prefixes as to server and agent.
    """
    with reporting_errors(1):
        text = policies_yaml(make_dialects(pairs("--prefix", prefix, _PREFIX)), namespace, enforce)
    click.echo(text, nl=False)
