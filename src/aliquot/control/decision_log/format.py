"""The decision log on disk: a JSON object per line. A file begins with a header and a snapshot of the cluster state,
followed by events, so each file can be replayed on its own. A new process that continues a file writes header and
snapshot again."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from aliquot.control.state.events import Decided, Loaded, Snapshot, StateEvent, TimePassed
from aliquot.engine import CountsRecord
from aliquot.errors import BadRecord
from aliquot.ledger import Entry, Owner, State
from aliquot.model import Charge, Host, NodeGpus, Placement, Request
from aliquot.plain import why

VERSION = 4
"""Since 4 the log has the load of cards, for decisions that depend on it."""


class Header(msgspec.Struct, frozen=True, tag_field="what", tag="header"):
    """`prefixes` of the dialects; `aliquot` is the version that wrote the file."""

    v: int
    aliquot: str
    prefixes: dict[str, str]


class Cards(msgspec.Struct, frozen=True, tag_field="what", tag="cards"):
    cards: NodeGpus


class HeldPart(msgspec.Struct, frozen=True, tag_field="what", tag="held", omit_defaults=True):
    """A ledger entry."""

    owner: Owner
    placement: Placement
    charges: dict[str, Charge]
    state: State
    since: float = 0.0
    until: float | None = None
    provisional: bool = False
    request: Request | None = None


class Hosts(msgspec.Struct, frozen=True, tag_field="what", tag="hosts", omit_defaults=True):
    """CPU and memory: what a node offers, and what each pod bound to it requests, by UID. There may be 100,000 pods, so
    these are only numbers: thousandths of a core, and MiB."""

    node: str
    offered: tuple[int, int] | None = None
    pods: dict[str, tuple[int, int]] = {}


class Counted(msgspec.Struct, frozen=True, tag_field="what", tag="counted"):
    """Pods by shape, and the UIDs of those that the cluster still has."""

    shapes: CountsRecord
    uids: list[str]


class Begun(msgspec.Struct, frozen=True, tag_field="what", tag="begun", omit_defaults=True):
    """End of the snapshot. `marks` are the cards marked unhealthy on each node, by index."""

    quotas: str | None
    marks: dict[str, list[int]] = {}


class Line(msgspec.Struct, frozen=True):
    """`at` is nanoseconds since 1970."""

    at: int
    event: Header | Cards | HeldPart | Hosts | Counted | Begun | StateEvent | Decided


def first_lines(
    header: Header, snapshot: Snapshot
) -> Iterator[Header | Cards | HeldPart | Hosts | Counted | TimePassed | Loaded | Begun]:
    """The lines at the beginning of a file."""
    yield header
    if snapshot.now:
        yield TimePassed(snapshot.now)
    yield from snapshot.loads
    for cards in snapshot.cards:
        yield Cards(cards)
    for entry in snapshot.entries:
        provisional = entry.uid in snapshot.provisional
        charges = dict(entry.charges)
        yield HeldPart(
            entry.owner, entry.placement, charges, entry.state, entry.since, entry.until, provisional, entry.request
        )
    for node in {**snapshot.offered, **snapshot.bound}:
        offered, pods = snapshot.offered.get(node), snapshot.bound.get(node, {})
        yield Hosts(node, _numbers(offered) if offered else None, {uid: _numbers(host) for uid, host in pods.items()})
    if snapshot.shapes.counts:
        yield Counted(snapshot.shapes, sorted(snapshot.counted))
    yield Begun(snapshot.quotas, {node: sorted(indexes) for node, indexes in snapshot.marks.items()})


def _numbers(host: Host) -> tuple[int, int]:
    return host.cpu, host.memory


def entry_of(held: HeldPart) -> Entry:
    return Entry(held.owner, held.placement, held.charges, held.state, held.since, held.until, held.request)


def is_beginning(text: bytes) -> bool:
    """Whether this first line begins a log that can be continued."""
    try:
        line = msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return text.endswith(b"\n") and isinstance(line.event, Header) and line.event.v == VERSION


def read(path: Path) -> Iterator[tuple[int, Line]]:
    """Yield every line with its number. Skips a last line that a kill left incomplete.

    Raises BadRecord for an unreadable line, and for a file that is not a decision log.
    """
    decoder = msgspec.json.Decoder(Line)
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith(b"\n"):
                    return
                yield number, _decoded(decoder, path, number, text)
    except OSError as error:
        raise BadRecord(f"{path} cannot be read: {why(error)}") from error


def _decoded(decoder: msgspec.json.Decoder[Line], path: Path, number: int, text: bytes) -> Line:
    try:
        line = decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRecord(f"{path}, line {number} cannot be read: {error}") from error
    if number == 1 and not isinstance(line.event, Header):
        raise BadRecord(f"{path} is not a decision log: it does not begin with a header")
    if isinstance(line.event, Header) and line.event.v != VERSION:
        raise BadRecord(f"{path} has version {line.event.v}; this Aliquot reads version {VERSION}")
    return line
