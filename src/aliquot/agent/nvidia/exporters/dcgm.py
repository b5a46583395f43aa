"""The metrics of dcgm-exporter that the agent can tell.

A card that one container has bears its pod's labels, as with dcgm-exporter. A shared card has its own series without
them, and one more per container of what a container's own can be told: cores and memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from aliquot.agent.card_health import CardState
from aliquot.agent.metrics import Shown
from aliquot.agent.nvidia.exporters import values
from aliquot.agent.prometheus import Metric, SeriesValue
from aliquot.agent.usage import ContainerUse

_CORES = values.gauge("DCGM_FI_DEV_GPU_UTIL", "Percent of the time in which a program ran.")
_MEMORY = values.gauge("DCGM_FI_DEV_FB_USED", "MiB in use.")
_OF_CARD: Mapping[Metric, Callable[[CardState], float | None]] = {
    values.gauge("DCGM_FI_DEV_FB_FREE", "MiB that are free."): lambda card: _free_mib(card),
    values.gauge("DCGM_FI_DEV_GPU_TEMP", "Temperature in degrees Celsius."): lambda card: card.usage.celsius,
    values.gauge("DCGM_FI_DEV_POWER_USAGE", "Power in watts."): lambda card: card.usage.watts,
    Metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy in millijoules since the driver was loaded."): (
        lambda card: None if card.usage.joules is None else round(1000 * card.usage.joules)
    ),
    values.gauge("DCGM_FI_DEV_SM_CLOCK", "Clock of the cores in MHz."): lambda card: _mhz(card.usage.core_hertz),
    values.gauge("DCGM_FI_DEV_MEM_CLOCK", "Clock of the memory in MHz."): lambda card: _mhz(card.usage.memory_hertz),
    Metric("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected errors of memory since the driver was loaded."): (
        lambda card: card.usage.corrected_errors
    ),
    Metric("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrected errors of memory since the driver was loaded."): (
        lambda card: card.usage.uncorrected_errors
    ),
}
_XID = values.gauge("DCGM_FI_DEV_XID_ERRORS", "The last XID error.")


def metrics(shown: Shown) -> Iterator[tuple[Metric, Iterable[SeriesValue]]]:
    users = values.grouped(shown.uses, lambda use: use.uuid)
    cards = [(_labels(shown.node, card, users.get(card.gpu.uuid, ())), card) for card in shown.cards]
    shared = [
        ({**labels, **_pod_labels(use)}, use)
        for labels, card in cards
        for use in users.get(card.gpu.uuid, ())
        if len(users[card.gpu.uuid]) > 1
    ]
    yield (
        _CORES,
        [
            *((labels, values.percent(card.usage.cores)) for labels, card in cards),
            *((labels, values.percent(use.share.cores)) for labels, use in shared),
        ],
    )
    yield (
        _MEMORY,
        [
            *((labels, values.mib(card.usage.memory_bytes)) for labels, card in cards),
            *((labels, values.mib(use.share.memory_bytes)) for labels, use in shared),
        ],
    )
    for metric, value in _OF_CARD.items():
        yield metric, ((labels, value(card)) for labels, card in cards)
    yield _XID, ((labels, shown.xids.get(card.gpu.uuid, 0)) for labels, card in cards)


def _labels(node: str, card: CardState, users: Iterable[ContainerUse]) -> Mapping[str, str]:
    gpu = card.gpu
    labels = {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "device": f"nvidia{gpu.minor}",
        "modelName": gpu.model,
        "Hostname": node,
    }
    holders = list(users)
    return {**labels, **_pod_labels(holders[0])} if len(holders) == 1 else labels


def _pod_labels(use: ContainerUse) -> Mapping[str, str]:
    meta = use.pod.metadata
    return {"container": use.container, "namespace": meta.namespace, "pod": meta.name}


def _free_mib(card: CardState) -> float | None:
    used = values.mib(card.usage.memory_bytes)
    return None if used is None else card.gpu.mib - used


def _mhz(hertz: int | None) -> float | None:
    return None if hertz is None else hertz / values.MHZ
