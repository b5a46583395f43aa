"""`aliquot replay`."""

import sys
from datetime import datetime
from pathlib import Path

import click

from aliquot import logs
from aliquot.app.replay import print_pod, replay
from aliquot.app.running import reporting_errors
from aliquot.cli.options import CONTEXT, TIME_EXAMPLE, Timestamp


@click.command(context_settings=CONTEXT)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--pod", metavar="NAMESPACE/NAME", help="Print what happened to this pod, and replay nothing.")
@click.option(
    "--at",
    type=Timestamp(),
    help=f"Replay up to this time, such as {TIME_EXAMPLE}, and print which pod held what at that time.",
)
def command(file: Path, pod: str | None, at: datetime | None) -> None:
    """Repeat every decision of a decision log, and compare the answers.

    FILE is the file that the server's key `decisionLog.file` names, or the older file next to it, which ends in .1.

    Exit code: 0 if all decisions are the same, 1 at the first decision that differs, 2 if the file cannot be read or
    does not contain what you asked for.
    """
    logs.configure("error")
    with reporting_errors(2):
        if pod:
            print_pod(file, at, pod)
        elif not replay(file, at):
            sys.exit(1)
