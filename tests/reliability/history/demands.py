"""What a pod asks for, read from its spec by a reader that shares nothing with Aliquot's dialects."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.reliability.history.machines import UNIT_MIB, Card

_BLOCK_MIB = 256
_FULL = 100


class Taken(NamedTuple):
    """Of one card."""

    cores: int = 0
    mib: int = 0
    slots: int = 0
    """Of MPS."""
    shares: int = 0
    """Parts without MPS: a card never has both."""

    def plus(self, other: "Taken") -> "Taken":
        return Taken(*map(sum, zip(self, other, strict=True)))

    def at_least(self, other: "Taken") -> "Taken":
        return Taken(*map(max, zip(self, other, strict=True)))


class Part(NamedTuple):
    """The same part of each of several cards."""

    cards: int
    cores: int = 0
    mib: int = 0
    percent: int = 0
    is_whole: bool = False
    slots: int = 0

    def of(self, card: Card) -> Taken:
        if self.is_whole:
            return Taken(_FULL, card.mib, shares=1)
        if self.slots:
            each = max(1, card.slots)
            return Taken(self.slots * _FULL // each, self.slots * card.mib // each, slots=self.slots)
        return Taken(self.cores, self.percent * card.mib // _FULL if self.percent else self.mib, shares=1)


def has_room(card: Card, taken: Taken, more: Taken) -> bool:
    """A card whose cores are sold out takes nobody."""
    return taken.cores < _FULL and not is_oversold(card, taken.plus(more))


def is_oversold(card: Card, taken: Taken) -> bool:
    beyond = taken.cores > _FULL or taken.mib > card.mib or taken.slots > card.slots
    return beyond or bool(taken.slots and taken.shares)


def peak(inits: list[Taken], mains: list[Taken]) -> Taken:
    """Of one card: init containers one after another, then all others together."""
    most = Taken()
    for main in mains:
        most = most.plus(main)
    for init in inits:
        most = most.at_least(init)
    return most


def parts(pod: Mapping[str, Any], agent: str = "ours") -> dict[str, Part]:
    """By container, of those that ask for GPUs. gpushare's own plugin knows no number of cards: where it hands them
    over, all memory is of one card."""
    labels = {} if agent == "gpushare" else pod["metadata"].get("labels") or {}
    return dict(_parts(pod, labels))


def inits(pod: Mapping[str, Any]) -> set[str]:
    return {container["name"] for container in pod["spec"].get("initContainers", ())}


def _parts(pod: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[tuple[str, Part]]:
    spec, annotations = pod["spec"], pod["metadata"].get("annotations") or {}
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        limits = (container.get("resources") or {}).get("limits") or {}
        part = _part({name: int(amount) for name, amount in limits.items() if "/" in name}, labels, annotations)
        if part is not None:
            yield container["name"], part


def _part(asked: Mapping[str, int], labels: Mapping[str, str], annotations: Mapping[str, str]) -> Part | None:
    if units := asked.get("aliyun.com/gpu-mem"):
        cards = int(labels.get("aliyun.com/gpu-count", 1))
        return Part(cards, mib=units // cards * UNIT_MIB)
    if cards := asked.get("aliyun.com/gpu-count", 0):
        return Part(cards, is_whole=True)
    if cores := asked.get("tencent.com/vcuda-core", 0):
        return _cores(cores, asked.get("tencent.com/vcuda-memory", 0) * _BLOCK_MIB)
    if cores := asked.get("elasticgpu.io/gpu-core", 0):
        return _cores(cores, asked.get("elasticgpu.io/gpu-memory", 0))
    if percent := asked.get("elastic-gpu/gpu-percent", 0):
        return Part(1, percent, percent=percent) if percent < _FULL else Part(percent // _FULL, is_whole=True)
    if cards := asked.get("nvidia.com/gpu", 0):
        cores, mib = asked.get("nvidia.com/gpucores", 0), asked.get("nvidia.com/gpumem", 0)
        return Part(cards, cores, mib, is_whole=not (cores or mib))
    if cards := asked.get("keti.com/mpsgpu", 0):
        return Part(cards, slots=1)
    if cards := asked.get("aliquot.io/gpu", 0):
        cores, memory = int(annotations.get("aliquot.io/cores", 0)), annotations.get("aliquot.io/memory", "0Mi")
        mib = int(memory.removesuffix("Mi"))
        return Part(cards, cores, mib, is_whole=not (cores or mib))
    return None


def _cores(cores: int, mib: int) -> Part:
    return Part(cores // _FULL, is_whole=True) if cores >= _FULL else Part(1, cores, mib)
