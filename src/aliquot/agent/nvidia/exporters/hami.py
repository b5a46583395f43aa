"""The metrics of HAMi's vGPUmonitor, from 2.9 on. Its ratios are percents."""

from collections.abc import Iterable, Iterator, Mapping

from aliquot.agent.card_health import CardState
from aliquot.agent.metrics import Shown
from aliquot.agent.nvidia.exporters import values
from aliquot.agent.prometheus import Metric, SeriesValue


def metrics(shown: Shown) -> Iterator[tuple[Metric, Iterable[SeriesValue]]]:
    cards = [(_card_labels(card), card) for card in shown.cards]
    yield (
        values.gauge("hami_host_gpu_memory_used_bytes", "Memory of a card in use."),
        ((labels, card.usage.memory_bytes) for labels, card in cards),
    )
    yield (
        values.gauge("hami_host_gpu_utilization_ratio", "Percent of the time in which a program ran on a card."),
        ((labels, values.percent(card.usage.cores)) for labels, card in cards),
    )
    uses = [
        (
            {
                "namespace": use.pod.metadata.namespace,
                "pod": use.pod.metadata.name,
                "container": use.container,
                "vdevice_index": str(place),
                "device_uuid": use.uuid,
            },
            use,
        )
        for own in values.grouped(shown.uses, lambda use: (use.pod.metadata.uid, use.container)).values()
        for place, use in enumerate(own)
    ]
    yield (
        values.gauge("hami_vgpu_memory_used_bytes", "Memory of a card that a container uses."),
        ((labels, use.share.memory_bytes) for labels, use in uses),
    )
    yield (
        values.gauge("hami_vgpu_memory_limit_bytes", "Memory of a card that a container was given."),
        ((labels, use.part.mib * values.MIB if use.part else None) for labels, use in uses),
    )
    yield (
        values.gauge("hami_container_device_utilization_ratio", "Percent of a card's cores that a container uses."),
        ((labels, values.percent(use.share.cores)) for labels, use in uses),
    )


def _card_labels(card: CardState) -> Mapping[str, str]:
    gpu = card.gpu
    return {"device_index": str(gpu.index), "device_type": f"NVIDIA-{gpu.model}", "device_uuid": gpu.uuid}
