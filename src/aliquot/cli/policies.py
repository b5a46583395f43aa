"""`aliquot policies`."""

import click
import yaml

from aliquot.app.options import SETTINGS, NamespaceName, dialects_with, option, prefix
from aliquot.app.running import reporting_errors
from aliquot.control.admission import ACTIONS, NAMESPACE, manifests

_HEAD = """\
# Made by `aliquot policies`: how the API server itself refuses stale leaders, forged placements, and whatever else
# Aliquot's own accounts might write (docs/admission.md).
# Apply after deploy/aliquot.yaml, which has the ConfigMaps that they read. Delete before anything else of Aliquot.
"""


@click.command(context_settings=SETTINGS)
@prefix
@option("--namespace", default=NAMESPACE, type=NamespaceName(), help="Where Aliquot's ConfigMaps are.")
@option(
    "--enforce",
    default="Warn,Audit",
    type=click.Choice(list(ACTIONS)),
    help="What happens to a user who writes a placement; the other policies always refuse.",
)
def command(prefix: tuple[str, ...], namespace: str, enforce: str) -> None:
    """Print the admission policies that guard placements, as YAML for kubectl.

    \b
      aliquot policies | kubectl apply -f -
      aliquot policies --enforce Deny | kubectl apply -f -

    They need Kubernetes 1.30. Give the same prefixes as to server and agent.
    """
    with reporting_errors(1):
        made = manifests(dialects_with(prefix), namespace, ACTIONS[enforce])
    click.echo(_HEAD + yaml.dump_all(made, Dumper=_Dumper, sort_keys=False, width=1_000_000), nl=False)


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines stay as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
