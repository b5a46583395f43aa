"""The metrics of elastic-gpu-exporter. Its label `pod` holds the pod's UID; ours is the name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from aliquot.agent.metrics import Shown
from aliquot.agent.nvidia.exporters import values
from aliquot.agent.prometheus import Metric, SeriesValue
from aliquot.agent.usage import ContainerUse

_CORES = 100
_Uses = Sequence[ContainerUse]
_Groups = Sequence[tuple[Mapping[str, str], _Uses]]

_USED: Mapping[str, tuple[str, Callable[[_Uses], float | None]]] = {
    "core_usage": ("Percent of a card's cores that it uses.", values.cores_percent),
    "core_utilization": (
        "Percent of the cores that it was given.",
        lambda uses: values.part_of(values.cores_percent(uses), values.given_cores(uses)),
    ),
    "mem_usage": ("MiB that it uses.", values.memory_mib),
    "mem_utilization": (
        "Percent of the memory that it was given.",
        lambda uses: values.part_of(values.memory_mib(uses), values.given_mib(uses)),
    ),
}


def metrics(shown: Shown) -> Iterator[tuple[Metric, Iterable[SeriesValue]]]:
    yield from _of_cards(shown)
    node = {"node": shown.node}
    pods = [
        ({**node, "namespace": uses[0].pod.metadata.namespace, "pod": uses[0].pod.metadata.name}, uses)
        for uses in values.grouped(shown.uses, lambda use: use.pod.metadata.uid).values()
    ]
    yield from _used("pod", pods)
    whole_mib = sum(card.gpu.mib for card in shown.cards if not card.gpu.parent)
    whole_cores = _CORES * sum(not card.gpu.parent for card in shown.cards)
    yield (
        values.gauge("pod_core_occupy_node", "Percent of the node's cores that a pod uses."),
        ((labels, values.part_of(values.cores_percent(uses), whole_cores)) for labels, uses in pods),
    )
    yield (
        values.gauge("pod_mem_occupy_node", "Percent of the node's memory that a pod uses."),
        ((labels, values.part_of(values.memory_mib(uses), whole_mib)) for labels, uses in pods),
    )
    yield (
        values.gauge("pod_mem_request", "MiB that a pod was given."),
        ((labels, values.given_mib(uses)) for labels, uses in pods),
    )
    containers = [
        ({**labels, "container": name}, own)
        for labels, uses in pods
        for name, own in values.grouped(uses, lambda use: use.container).items()
    ]
    yield from _used("container", containers)


def _used(what: str, groups: _Groups) -> Iterator[tuple[Metric, Iterable[SeriesValue]]]:
    for name, (text, value) in _USED.items():
        yield values.gauge(f"{what}_{name}", text), [(labels, value(uses)) for labels, uses in groups]


def _of_cards(shown: Shown) -> Iterator[tuple[Metric, Iterable[SeriesValue]]]:
    cards = [({"node": shown.node, "card": str(card.gpu.index)}, card) for card in shown.cards]
    uses = values.grouped(shown.uses, lambda use: use.uuid)
    yield (
        values.gauge("gpu_core_usage", "Percent of a card's cores that known containers use."),
        ((labels, values.cores_percent(uses.get(card.gpu.uuid, ()))) for labels, card in cards),
    )
    yield (
        values.gauge("gpu_core_utilization", "Percent of the time in which a program ran on a card."),
        ((labels, values.percent(card.usage.cores)) for labels, card in cards),
    )
    yield (
        values.gauge("gpu_mem_usage", "MiB of a card in use."),
        ((labels, values.mib(card.usage.memory_bytes)) for labels, card in cards),
    )
    yield (
        values.gauge("gpu_mem_utilization", "Percent of a card's memory in use."),
        ((labels, values.part_of(values.mib(card.usage.memory_bytes), card.gpu.mib)) for labels, card in cards),
    )
