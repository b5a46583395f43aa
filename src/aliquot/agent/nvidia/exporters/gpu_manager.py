"""gpu-manager's metrics of containers."""

from collections.abc import Iterable, Iterator, Mapping

from aliquot.agent.metrics import Shown
from aliquot.agent.nvidia.exporters import values
from aliquot.agent.prometheus import Metric, SeriesValue
from aliquot.agent.usage import ContainerUse

_TOTAL = "total"
_USED_CORES = values.gauge(
    "container_gpu_utilization", "Percent of cores that a container uses, per card and in total."
)
_USED_MEMORY = values.gauge("container_gpu_memory_total", "MiB that a container uses, per card and in total.")
_CORES = values.gauge("container_request_gpu_utilization", "Cards that a container was given, in parts of their cores.")
_MEMORY = values.gauge("container_request_gpu_memory", "MiB that a container was given.")


def metrics(shown: Shown) -> Iterator[tuple[Metric, Iterable[SeriesValue]]]:
    indexes = {card.gpu.uuid: f"gpu{card.gpu.index}" for card in shown.cards}
    containers = [
        (_labels(shown.node, uses[0]), uses)
        for uses in values.grouped(shown.uses, lambda use: (use.pod.metadata.uid, use.container)).values()
    ]

    def per_card(label: str, uses: list[ContainerUse]) -> Iterator[tuple[Mapping[str, str], list[ContainerUse]]]:
        yield {label: _TOTAL}, uses
        yield from (({label: indexes[use.uuid]}, [use]) for use in uses if use.uuid in indexes)

    yield (
        _USED_CORES,
        (
            ({**labels, **card}, values.cores_percent(own))
            for labels, uses in containers
            for card, own in per_card("gpu", uses)
        ),
    )
    yield (
        _USED_MEMORY,
        (
            ({**labels, **card}, values.memory_mib(own))
            for labels, uses in containers
            for card, own in per_card("gpu_memory", uses)
        ),
    )
    yield (
        _CORES,
        (({**labels, "req_of_gpu": _TOTAL}, values.given_cores(uses) / 100) for labels, uses in containers),
    )
    yield _MEMORY, (({**labels, "req_of_gpu_memory": _TOTAL}, values.given_mib(uses)) for labels, uses in containers)


def _labels(node: str, use: ContainerUse) -> Mapping[str, str]:
    meta = use.pod.metadata
    return {"pod_name": meta.name, "namespace": meta.namespace, "node": node, "container_name": use.container}
