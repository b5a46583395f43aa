"""Which shapes of GPU pods a cluster sees, and how often: what policies may expect to come."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from aliquot.model import Host, Memory, ModelConstraint, Part, Request, peak
from aliquot.model.bounds import MAX_COUNTED_PODS, MAX_SHAPES

_STEP = 2
"""What policies see changes when the pods since then are half of all: what they derive from it is dear."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of pod: a part of each of `cards` cards, as `Part` has it, and what the pod requests of CPU and memory.
    `mig` is the profile of an instance, as in `Constraints`."""

    cards: int
    cores: int
    memory: Memory
    whole: bool
    host: Host
    models: tuple[ModelConstraint, ...] = ()
    slots: int = 0
    mig: str = ""


def shape_of(request: Request) -> Shape:
    """The shape of a request. Containers with parts of different sizes count as if each had the largest."""
    part = request.containers[0].part if len(request.containers) == 1 else _joined(request)
    wanted = request.constraints
    return Shape(part.cards, part.cores, part.memory, part.whole, request.host, wanted.models, part.slots, wanted.mig)


def _joined(request: Request) -> Part:
    """What several containers take, as if they were one: their cards are added, or each card takes the sum if they
    share their cards."""
    parts = [(container.life, container.part) for container in request.containers]
    largest = max((part for _, part in parts), key=_size)
    if not request.together:
        return replace(largest, cards=peak((life, part.cards) for life, part in parts))
    cards = max(part.cards for _, part in parts)
    if len({part.memory.unit for _, part in parts}) > 1:
        return replace(largest, cards=cards)
    return Part(
        cards=cards,
        cores=peak((life, part.cores) for life, part in parts),
        memory=Memory(peak((life, part.memory.amount) for life, part in parts), largest.memory.unit),
        whole=largest.whole,
        slots=peak((life, part.slots) for life, part in parts),
    )


def _size(part: Part) -> tuple[bool, int, int, int]:
    return part.whole, part.cores, part.memory.amount, part.slots


@dataclass(frozen=True, slots=True)
class CountsRecord:
    """Everything that ShapeCounts knows, in order: its counts, those that policies see, and how many pods were `added`
    since these were shown."""

    counts: tuple[tuple[Shape, int], ...] = ()
    shown: tuple[tuple[Shape, int], ...] = ()
    version: int = 0
    added: int = 0


class ShapeCounts:
    """Counts pods by shape. Old pods fade: when MAX_COUNTED_PODS are counted, every count is halved. Of more than
    MAX_SHAPES shapes the rarest is dropped.

    Policies see `shapes`, which stays the same until `version` grows: what they derive from it can be kept by version.
    """

    def __init__(self, record: CountsRecord | None = None) -> None:
        known = record or CountsRecord()
        self._counts = dict(known.counts)
        self._sum = sum(self._counts.values())
        self._show(dict(known.shown), known.version)
        self._added = known.added

    def add(self, request: Request) -> None:
        """Count the pod of a request."""
        shape = shape_of(request)
        if shape not in self._counts and len(self._counts) == MAX_SHAPES:
            rarest = min(self._counts, key=self._counts.__getitem__)  # the oldest of these
            self._sum -= self._counts.pop(rarest)
        self._counts[shape] = self._counts.get(shape, 0) + 1
        self._sum += 1
        self._added += 1
        if self._sum > MAX_COUNTED_PODS:
            self._counts = {shape: count // 2 for shape, count in self._counts.items() if count > 1}
            self._sum = sum(self._counts.values())
        if self._added * _STEP >= self._sum:
            self._show(dict(self._counts), self.version + 1)

    def record(self) -> CountsRecord:
        return CountsRecord(tuple(self._counts.items()), tuple(self.shapes.items()), self.version, self._added)

    def _show(self, shown: dict[Shape, int], version: int) -> None:
        self.shapes: Mapping[Shape, int] = MappingProxyType(shown)
        self.total = sum(shown.values())
        self.version = version
        self._added = 0
