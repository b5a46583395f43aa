"""Every metric of an agent: of its cards, of the containers that use them, and of itself."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aliquot.agent.card_health import CardState
from aliquot.agent.devices import CardError
from aliquot.agent.prometheus import Metric, SeriesValue, lines
from aliquot.agent.usage import Collected, ContainerUse
from aliquot.model.bounds import LARGEST_XID

_HEALTHY = Metric("aliquot_card_healthy", "gauge", "1 while containers may start on a card.")
_CORDONED = Metric("aliquot_card_cordoned", "gauge", "1 while a card takes no new pods, by an XID error or by hand.")
_MEMORY = Metric("aliquot_card_memory_bytes", "gauge", "Memory of a card.")
_CORES_BUSY = Metric("aliquot_card_cores_busy_ratio", "gauge", "The part of the time in which a program ran on a card.")
_MEMORY_USED = Metric(
    "aliquot_card_memory_used_bytes", "gauge", "Memory of a card in use, with what its driver keeps for itself."
)
_TEMPERATURE = Metric("aliquot_card_temperature_celsius", "gauge", "Temperature of a card.")
_POWER = Metric("aliquot_card_power_watts", "gauge", "Power that a card draws.")
_ENERGY = Metric(
    "aliquot_card_energy_joules_total", "counter", "Energy that a card has used since its driver was loaded."
)
_CORE_CLOCK = Metric("aliquot_card_core_clock_hertz", "gauge", "Clock of a card's cores.")
_MEMORY_CLOCK = Metric("aliquot_card_memory_clock_hertz", "gauge", "Clock of a card's memory.")
_ECC_ERRORS = Metric(
    "aliquot_card_ecc_errors_total",
    "counter",
    "ECC errors of a card's memory since its driver was loaded: corrected or uncorrected.",
)
_NVLINKS = Metric("aliquot_card_nvlinks", "gauge", "NVLinks of a card that are up.")
_NVLINK_SENT = Metric("aliquot_card_nvlink_sent_bytes_total", "counter", "Bytes that a card has sent over NVLink.")
_NVLINK_RECEIVED = Metric(
    "aliquot_card_nvlink_received_bytes_total", "counter", "Bytes that a card has received over NVLink."
)
_NVLINK_ERRORS = Metric(
    "aliquot_card_nvlink_errors_total", "counter", "Checksum errors of a card's NVLinks since its driver was loaded."
)
_XID_ERRORS = Metric("aliquot_xid_errors_total", "counter", "XID errors of a card since the agent started.")
_CONTAINER_MEMORY = Metric(
    "aliquot_container_memory_used_bytes", "gauge", "Memory of a card that the processes of a container use."
)
_CONTAINER_CORES = Metric(
    "aliquot_container_cores_busy_ratio",
    "gauge",
    "The part of a card's cores that the processes of a container use, measured or estimated.",
)
_CONTAINER_ENERGY = Metric(
    "aliquot_container_energy_joules_total",
    "counter",
    "A container's part of the energy of a card, by its part of the cores, since the agent first saw it.",
)
_COLLECTED = Metric(
    "aliquot_collection_timestamp_seconds", "gauge", "When the agent last collected who uses its cards."
)
_KNOWS_OWNERS = Metric(
    "aliquot_process_owners_known", "gauge", "1 while the agent can tell in which container a process runs."
)

_CARD: Mapping[Metric, Callable[[CardState], float | None]] = {
    _HEALTHY: lambda card: int(not card.fault),
    _CORDONED: lambda card: int(bool(card.cordon)),
    _MEMORY: lambda card: card.gpu.mib * _MIB,
    _CORES_BUSY: lambda card: card.usage.cores,
    _MEMORY_USED: lambda card: card.usage.memory_bytes,
    _TEMPERATURE: lambda card: card.usage.celsius,
    _POWER: lambda card: card.usage.watts,
    _ENERGY: lambda card: card.usage.joules,
    _CORE_CLOCK: lambda card: card.usage.core_hertz,
    _MEMORY_CLOCK: lambda card: card.usage.memory_hertz,
    _NVLINKS: lambda card: card.usage.nvlinks,
    _NVLINK_SENT: lambda card: card.usage.nvlink_sent_bytes,
    _NVLINK_RECEIVED: lambda card: card.usage.nvlink_received_bytes,
    _NVLINK_ERRORS: lambda card: card.usage.nvlink_errors,
}
_CONTAINER: Mapping[Metric, Callable[[ContainerUse], float | None]] = {
    _CONTAINER_MEMORY: lambda use: use.share.memory_bytes,
    _CONTAINER_ENERGY: lambda use: use.joules,
}
_MIB = 2**20
METRICS = (*_CARD, _ECC_ERRORS, _XID_ERRORS, *_CONTAINER, _CONTAINER_CORES, _COLLECTED, _KNOWS_OWNERS)


@dataclass(frozen=True)
class Shown:
    """What there is to show. `xids` has the last XID error of each card, by UUID."""

    node: str
    cards: Sequence[CardState] = ()
    uses: Sequence[ContainerUse] = ()
    xids: Mapping[str, int] = field(default_factory=dict)


Exporter = Callable[[Shown], Iterable[tuple[Metric, Iterable[SeriesValue]]]]
"""The same with the names, labels and units of another exporter."""


class AgentMetrics:
    """`exporters` are shown beside our own metrics."""

    def __init__(self, node: str, exporters: Sequence[Exporter] = ()) -> None:
        self._node = node
        self._exporters = exporters
        self.cards: Sequence[CardState] = ()
        self._collected: Callable[[], Collected] = Collected
        self._xids: Counter[tuple[str, str]] = Counter()
        self._last_xids: dict[str, int] = {}

    def count_xid(self, error: CardError) -> None:
        self._xids[error.uuid, str(error.code) if 0 < error.code <= LARGEST_XID else "other"] += 1
        self._last_xids[error.uuid] = error.code

    def follow(self, collected: Callable[[], Collected]) -> None:
        """Show what this returns."""
        self._collected = collected

    def forget(self) -> None:
        """The agent starts again, and knows nothing of the cards."""
        self.cards, self._collected = (), Collected

    def text(self) -> str:
        collected = self._collected()
        own = (*self._of_cards(), *self._of_containers(collected), *self._of_agent(collected))
        return "".join((*own, *self._of_exporters(collected)))

    def _of_cards(self) -> Iterator[str]:
        cards = [(_card_labels(card), card) for card in self.cards]
        for metric, value in _CARD.items():
            yield from lines(metric, ((labels, value(card)) for labels, card in cards))
        yield from lines(_ECC_ERRORS, (sample for labels, card in cards for sample in _ecc_errors(labels, card)))
        yield from lines(
            _XID_ERRORS, (({"uuid": uuid, "xid": xid}, count) for (uuid, xid), count in sorted(self._xids.items()))
        )

    def _of_containers(self, collected: Collected) -> Iterator[str]:
        uses = [(_container_labels(use), use) for use in collected.uses]
        for metric, value in _CONTAINER.items():
            yield from lines(metric, ((labels, value(use)) for labels, use in uses))
        yield from lines(_CONTAINER_CORES, ((_with_method(labels, use), use.share.cores) for labels, use in uses))

    def _of_agent(self, collected: Collected) -> Iterator[str]:
        yield from lines(_COLLECTED, [({}, collected.at or None)])
        yield from lines(_KNOWS_OWNERS, [({}, int(collected.knows_owners) if collected.at else None)])

    def _of_exporters(self, collected: Collected) -> Iterator[str]:
        shown = Shown(self._node, self.cards, collected.uses, self._last_xids)
        for exporter in self._exporters:
            for metric, samples in exporter(shown):
                yield from lines(metric, samples)


def _card_labels(card: CardState) -> Mapping[str, str]:
    return {"uuid": card.gpu.uuid, "index": str(card.gpu.index), "model": card.gpu.model}


def _ecc_errors(labels: Mapping[str, str], card: CardState) -> Iterable[SeriesValue]:
    yield {**labels, "kind": "corrected"}, card.usage.corrected_errors
    yield {**labels, "kind": "uncorrected"}, card.usage.uncorrected_errors


def _container_labels(use: ContainerUse) -> Mapping[str, str]:
    meta = use.pod.metadata
    return {"namespace": meta.namespace, "pod": meta.name, "container": use.container, "uuid": use.uuid}


def _with_method(labels: Mapping[str, str], use: ContainerUse) -> Mapping[str, str]:
    return {**labels, "method": "estimated" if use.share.estimated else "measured"}
