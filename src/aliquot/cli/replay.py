"""`aliquot replay`."""

import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from difflib import get_close_matches
from itertools import chain, takewhile
from pathlib import Path

import click

from aliquot import logs
from aliquot.app.options import SETTINGS, option
from aliquot.app.running import reporting_errors
from aliquot.app.times import EXAMPLE, Time
from aliquot.clock import rfc3339
from aliquot.control.decision_log.format import Line, read
from aliquot.control.decision_log.pod_story import answered, pod_of, story, where
from aliquot.control.decision_log.replay import Replay
from aliquot.control.state.cluster_state import ClusterState
from aliquot.errors import BadInput, BadRecord

_NEAREST, _LIKENESS = 3, 0.85


@click.command(context_settings=SETTINGS)
@click.argument("file", type=click.Path(path_type=Path))
@option("--pod", default="", metavar="NAMESPACE/NAME", help="Tell what became of one pod, and decide nothing again.")
@option("--at", type=Time(), help=f"Replay up to a time, such as {EXAMPLE}, and show who held what then.")
def command(file: Path, pod: str, at: datetime | None) -> None:
    """Make every decision of a decision log again, and compare.

    FILE is what `decisionLog.file` of the server names, or the older one beside it, whose name ends in .1.

    Exit code: 0 if every decision comes out the same, 1 at the first that does not, 2 if the file cannot be read,
    or has nothing of what was asked for.
    """
    logs.configure("error")
    with reporting_errors(2):
        lines = _until(at, _some(file))
        if pod:
            _tell(pod, lines)
        elif not _replay(lines, show=at is not None):
            sys.exit(1)


def _some(file: Path) -> Iterator[tuple[int, Line]]:
    """At least one line. Raises BadRecord."""
    lines = read(file)
    first = next(lines, None)
    if first is None:
        raise BadRecord(f"{file} is empty: there is nothing to replay")
    return chain([first], lines)


def _until(at: datetime | None, lines: Iterator[tuple[int, Line]]) -> Iterator[tuple[int, Line]]:
    """Raises BadInput for a time before the first line."""
    if at is None:
        return lines
    first = next(lines)
    end = int(at.timestamp() * 1e9)
    if first[1].at > end:
        begins = rfc3339(first[1].at, fraction=True)
        raise BadInput(f"--at {at.isoformat()}: there is nothing to replay, the log begins at {begins}")
    return takewhile(lambda numbered: numbered[1].at <= end, chain([first], lines))


def _tell(pod: str, lines: Iterable[tuple[int, Line]]) -> None:
    """Raises BadInput for a pod that the log does not know."""
    known: set[str] = set()
    told = 0
    for text in story(pod, _noting(known, lines)):
        click.echo(text)
        told += 1
    if not told:
        near = [name for name in sorted(known) if name.endswith(f"/{pod}")] or get_close_matches(
            pod, known, _NEAREST, _LIKENESS
        )
        hint = f"is it {' or '.join(near[:_NEAREST])}?" if near else f"it knows {len(known)} others"
        raise BadInput(f"the log knows no pod {pod} (NAMESPACE/NAME); {hint}")


def _noting(known: set[str], lines: Iterable[tuple[int, Line]]) -> Iterator[tuple[int, Line]]:
    for number, line in lines:
        if name := pod_of(line):
            known.add(name)
        yield number, line


def _replay(lines: Iterable[tuple[int, Line]], *, show: bool) -> bool:
    replay = Replay()
    replay.feed(lines)
    if show:
        _show(replay.cluster)
    different = replay.difference
    if different is None:
        some = f"{replay.decisions} decisions replayed, all the same"
        click.echo(some if replay.decisions else "there is no decision in it")
        return True
    at = rfc3339(different.at, fraction=True)
    click.echo(
        f"{replay.decisions} decisions replayed; the last one differs: line {different.line}, {at}, "
        f"pod {different.pod}\n  then: {answered(different.then)}\n  now:  {answered(different.now)}"
    )
    return False


def _show(cluster: ClusterState) -> None:
    for entry in sorted(cluster.ledger.all(), key=lambda entry: (entry.node, entry.owner.pod)):
        click.echo(f"{entry.state.value:8} {entry.owner.pod}  {where(entry.placement)}")
