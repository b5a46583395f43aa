"""The `aliquot` command. Each subcommand is a file of its own, imported only when it is called."""

from importlib import import_module

import click

import aliquot
from aliquot.app.signals import hear_from_the_start

hear_from_the_start()  # what a command imports takes a second

_COMMANDS = {
    "server": "the control plane: answers schedulers and keeps the cluster state",
    "agent": "the agent of one GPU node: offers its cards and hands them over",
    "policies": "prints the admission policies that guard placements, for kubectl",
    "replay": "makes the decisions of a decision log again and compares",
    "demo": "everything on an embedded cluster: no Kubernetes, no GPU, no root",
}


class _LateGroup(click.Group):
    """Knows its commands by name and first line, so that `--help` imports none of them."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"aliquot.cli.{name}").command
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LateGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(aliquot.__version__, prog_name="aliquot")
def main() -> None:
    """Aliquot shares and schedules GPUs on Kubernetes: exact parts, placed well, never sold twice.

    \b
    Try it:       aliquot demo
    In a cluster: aliquot server (one or more) and aliquot agent (one per GPU node)

    Every option of server and agent can also be given as an environment variable, shown in its --help.
    """
