"""`aliquot replay`: repeats the decisions of a decision log, or prints what the log says about a pod."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from difflib import get_close_matches
from itertools import chain, takewhile
from pathlib import Path

import click

from aliquot.clock import rfc3339
from aliquot.control.decision_log.format import Line, read
from aliquot.control.decision_log.pod_story import answered, pod_of, story, where
from aliquot.control.decision_log.replay import Replay
from aliquot.control.state.cluster_state import ClusterState
from aliquot.errors import BadInput, BadRecord

_MAX_SUGGESTIONS, _LIKENESS = 3, 0.85


def print_pod(file: Path, until: datetime | None, pod: str) -> None:
    """Print what happened to a pod. Raises BadInput for a pod that the log does not mention."""
    known: set[str] = set()
    is_known = False
    for text in story(pod, _noting_pods(known, _lines(file, until))):
        click.echo(text)
        is_known = True
    if not is_known:
        raise BadInput(f"the log does not mention pod {pod} (NAMESPACE/NAME); {_suggestion(pod, known)}")


def replay(file: Path, until: datetime | None) -> bool:
    """Repeat every decision and print the result. Returns whether all decisions are the same.

    With `until`, also print which pods held which cards at that time. Raises BadInput.
    """
    replayed = Replay()
    replayed.feed(_lines(file, until))
    if until is not None:
        _print_holders(replayed.cluster)
    different = replayed.difference
    if different is None:
        result = f"{replayed.decisions} decisions replayed, all with the same answer"
        click.echo(result if replayed.decisions else "the log contains no decision")
        return True
    at = rfc3339(different.at, fraction=True)
    click.echo(
        f"{replayed.decisions} decisions replayed; the last answer differs: line {different.line}, {at}, "
        f"pod {different.pod}\n  then: {answered(different.then)}\n  now:  {answered(different.now)}"
    )
    return False


def _lines(file: Path, until: datetime | None) -> Iterator[tuple[int, Line]]:
    """The numbered lines up to a time, at least one. Raises BadInput if there is none."""
    lines = read(file)
    first = next(lines, None)
    if first is None:
        raise BadRecord(f"{file} is empty: there is nothing to replay")
    lines = chain([first], lines)
    if until is None:
        return lines
    end = int(until.timestamp() * 1e9)
    if first[1].at > end:
        asked, begins = until.isoformat().replace("+00:00", "Z"), rfc3339(first[1].at, fraction=True)
        raise BadInput(f"--at {asked}: there is nothing to replay; the log begins only at {begins}")
    return takewhile(lambda numbered: numbered[1].at <= end, lines)


def _noting_pods(known: set[str], lines: Iterable[tuple[int, Line]]) -> Iterator[tuple[int, Line]]:
    for number, line in lines:
        if name := pod_of(line):
            known.add(name)
        yield number, line


def _suggestion(pod: str, known: set[str]) -> str:
    near = [name for name in sorted(known) if name.endswith(f"/{pod}")]
    near = near or get_close_matches(pod, known, _MAX_SUGGESTIONS, _LIKENESS)
    if near:
        return f"did you mean {' or '.join(near[:_MAX_SUGGESTIONS])}?"
    return f"it mentions {len(known)} other pods"


def _print_holders(cluster: ClusterState) -> None:
    for entry in sorted(cluster.ledger.all(), key=lambda entry: (entry.node, entry.owner.pod)):
        click.echo(f"{entry.state.value:8} {entry.owner.pod}  {where(entry.placement)}")
