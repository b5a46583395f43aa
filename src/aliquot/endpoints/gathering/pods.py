"""What namespaces and pods hold and use."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from aliquot import metrics
from aliquot.control import ControlPlane
from aliquot.control.inputs.pod_use import PodUse, unused
from aliquot.endpoints.gathering.largest import largest
from aliquot.endpoints.gathering.pauses import Pauses
from aliquot.ledger import Entry
from aliquot.model import NodeGpus
from aliquot.model.bounds import MAX_SHOWN_NAMESPACES, MIB
from aliquot.model.selling import share_of

_IDLE_SECONDS = 600.0
_Row = tuple[tuple[str, ...], float]


def gather(plane: ControlPlane, pauses: Pauses) -> Iterator[None]:
    """Of all pods only the sizes are kept, so that a scrape gives the garbage collector no work."""
    namespaces: dict[str, _Namespace] = defaultdict(_Namespace)
    entries: list[Entry] = []
    sizes: list[float] = []
    known = _Known(plane)
    for node in plane.cluster.totals.nodes:
        is_fresh, cards = plane.heartbeats.has_fresh_load(node), plane.cluster.cards(node)
        for entry in plane.cluster.ledger.entries(node):
            held = _held(entry, cards)
            size = sum(share for share, _ in held.values())
            namespaces[entry.owner.namespace].add(held, size)
            if is_fresh and (use := known.use(entry.uid)) is not None:
                namespaces[entry.owner.namespace].measure(size, use, known.idle(entry.uid))
            entries.append(entry)
            sizes.append(size)
        yield from pauses()
    _show_namespaces(namespaces)
    yield from pauses()
    shown = [entries[place] for place in largest("pods", sizes, plane.settings.metrics.pods)]
    yield from _show_pods(shown, known, pauses)


class _Known:
    """What is known of the use of pods."""

    def __init__(self, plane: ControlPlane) -> None:
        self._history = plane.heartbeats.history
        self._now = plane.clock.wall_ns() / 1e9
        self.cards = plane.cluster.cards
        self.is_fresh = plane.heartbeats.has_fresh_load

    def use(self, uid: str) -> PodUse | None:
        return self._history.use(uid)

    def idle(self, uid: str) -> float:
        since = self._history.idle_since(uid)
        return 0.0 if since is None else max(0.0, self._now - since)


def _held(entry: Entry, cards: NodeGpus) -> dict[str, tuple[float, int]]:
    """Cards and MiB, by model."""
    held: dict[str, tuple[float, int]] = {}
    for uuid, charge in entry.charges.items():
        gpu = cards.by_uuid.get(uuid)
        share = 1.0 if gpu is None else share_of(gpu, charge)
        model = cards.model if gpu is None else gpu.model
        before = held.get(model, (0.0, 0))
        held[model] = before[0] + share, before[1] + charge.mib
    return held


@dataclass(slots=True)
class _Namespace:
    pods: int = 0
    cards: float = 0.0
    held: dict[str, tuple[float, int]] = field(default_factory=dict)
    measured: float = 0.0
    used: float = 0.0
    used_bytes: int = 0
    unused: float = 0.0
    idle: float = 0.0

    def add(self, held: Mapping[str, tuple[float, int]], size: float) -> None:
        self.pods += 1
        self.cards += size
        for model, (share, mib) in held.items():
            before = self.held.get(model, (0.0, 0))
            self.held[model] = before[0] + share, before[1] + mib

    def measure(self, size: float, use: PodUse, idle: float) -> None:
        if use.cores is not None:
            self.measured += size
            self.used += use.cores
            self.used_bytes += use.memory_bytes or 0
            self.unused += unused(size, use)
            self.idle += size if idle >= _IDLE_SECONDS else 0.0


def _show_namespaces(namespaces: Mapping[str, _Namespace]) -> None:
    found = sorted(namespaces.items())
    shown = [found[place] for place in largest("namespaces", [own.cards for _, own in found], MAX_SHOWN_NAMESPACES)]
    models = [((model, name), held) for name, own in shown for model, held in sorted(own.held.items())]
    metrics.NAMESPACE_ALLOCATED.rows = [(labels, share) for labels, (share, _) in models]
    metrics.NAMESPACE_ALLOCATED_MEMORY.rows = [(labels, mib * MIB) for labels, (_, mib) in models]
    metrics.NAMESPACE_PODS.rows = [((name,), own.pods) for name, own in shown]
    measured = [(name, own) for name, own in shown if own.measured]
    metrics.NAMESPACE_MEASURED.rows = [((name,), own.measured) for name, own in measured]
    metrics.NAMESPACE_USED.rows = [((name,), own.used) for name, own in measured]
    metrics.NAMESPACE_USED_MEMORY.rows = [((name,), own.used_bytes) for name, own in measured]
    metrics.NAMESPACE_UNUSED.rows = [((name,), own.unused) for name, own in measured]
    metrics.NAMESPACE_IDLE.rows = [((name,), own.idle) for name, own in measured]


def _show_pods(entries: list[Entry], known: _Known, pauses: Pauses) -> Iterator[None]:
    cards, memory = list[_Row](), list[_Row]()
    used, used_memory, wasted, idle = list[_Row](), list[_Row](), list[_Row](), list[_Row]()
    for entry in entries:
        held = _held(entry, known.cards(entry.node))
        namespace, _, name = entry.owner.pod.partition("/")
        labels = namespace, entry.node, name
        size = sum(share for share, _ in held.values())
        cards.append((labels, size))
        memory.append((labels, sum(mib for _, mib in held.values()) * MIB))
        if known.is_fresh(entry.node) and (use := known.use(entry.uid)) is not None:
            if use.memory_bytes is not None:
                used_memory.append((labels, use.memory_bytes))
            if use.cores is not None:
                used.append((labels, use.cores))
                wasted.append((labels, unused(size, use)))
                idle.append((labels, known.idle(entry.uid)))
        yield from pauses()
    metrics.POD_ALLOCATED.rows, metrics.POD_ALLOCATED_MEMORY.rows = cards, memory
    metrics.POD_USED.rows, metrics.POD_USED_MEMORY.rows = used, used_memory
    metrics.POD_UNUSED.rows, metrics.POD_IDLE.rows = wasted, idle
