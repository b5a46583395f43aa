"""`aliquot replay`."""

import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import takewhile
from pathlib import Path

import click

from aliquot import logs
from aliquot.cli.options import SETTINGS, option
from aliquot.cli.running import reporting_errors
from aliquot.clock import rfc3339
from aliquot.control.books import Books
from aliquot.control.log_format import Line, read
from aliquot.control.replay import Replay
from aliquot.control.story import answered, story, where

_TIME = "%Y-%m-%dT%H:%M:%S%z"


@click.command(context_settings=SETTINGS)
@click.argument("file", type=click.Path(path_type=Path))
@option("--pod", default="", metavar="NAMESPACE/NAME", help="Tell what became of one pod, and decide nothing again.")
@option("--at", type=click.DateTime([_TIME]), help="Replay up to a time, and show who held what then.")
def command(file: Path, pod: str, at: datetime | None) -> None:
    """Make every decision of a decision log again, and compare.

    FILE is what `decisionLog.file` of the server names, or the older one beside it, whose name ends in .1.

    Exit code: 0 if every decision comes out the same, 1 at the first that does not, 2 if the file cannot be read.
    """
    logs.configure("error")
    with reporting_errors(2):
        lines = _until(at, read(file))
        if pod:
            _tell(pod, lines)
        elif not _replay(lines, show=at is not None):
            sys.exit(1)


def _until(at: datetime | None, lines: Iterator[tuple[int, Line]]) -> Iterator[tuple[int, Line]]:
    if at is None:
        return lines
    end = int(at.timestamp() * 1e9)
    return takewhile(lambda numbered: numbered[1].at <= end, lines)


def _tell(pod: str, lines: Iterable[tuple[int, Line]]) -> None:
    told = 0
    for text in story(pod, lines):
        click.echo(text)
        told += 1
    if not told:
        click.echo(f"the log knows no pod {pod}")


def _replay(lines: Iterable[tuple[int, Line]], *, show: bool) -> bool:
    replay = Replay()
    replay.feed(lines)
    if show:
        _show(replay.books)
    different = replay.difference
    if different is None:
        click.echo(f"{replay.decisions} decisions replayed, all the same")
        return True
    at = rfc3339(different.at, fraction=True)
    click.echo(
        f"{replay.decisions} decisions replayed; the last one differs: line {different.line}, {at}, "
        f"pod {different.pod}\n  then: {answered(different.then)}\n  now:  {answered(different.now)}"
    )
    return False


def _show(books: Books) -> None:
    for entry in sorted(books.ledger.all(), key=lambda entry: (entry.node, entry.owner.pod)):
        click.echo(f"{entry.state.value:8} {entry.owner.pod}  {where(entry.placement)}")
