"""The `aliquot` command. Each subcommand has its own file, which is imported only when the command runs.

What may enter: parsing of command lines, and one call into `app/`.
"""

from importlib import import_module

import click

import aliquot
from aliquot.app import light_start
from aliquot.app.process_signals import handle_sigterm_early

handle_sigterm_early()  # the imports of a command take a second

_COMMANDS = {
    "server": "Run the control plane: answer schedulers and keep the cluster state.",
    "agent": "Run the agent of a GPU node: offer its cards and give them to containers.",
    "policies": "Print the admission policies that protect placements, for kubectl.",
    "replay": "Repeat the decisions of a decision log, and compare the answers.",
    "simulate": "Replay pods on a described cluster, and compare policies.",
    "demo": "Run all of Aliquot on an embedded cluster: no Kubernetes, no GPU, no root.",
}


class _LazyGroup(click.Group):
    """Knows the names and summaries of its commands, so that `--help` imports none of them."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        if name == "agent":
            light_start.prepare()
        command: click.Command = import_module(f"aliquot.cli.{name}").command
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(aliquot.__version__, prog_name="aliquot")
def main() -> None:
    """Share and schedule GPUs on Kubernetes: exact parts, placed well, never allocated twice.

    \b
    Try it:       aliquot demo
    In a cluster: run one or more of `aliquot server`, and `aliquot agent` on every GPU node

    You can set every option of server and agent as an environment variable, too. Their --help lists the variables.
    """
