"""A witness for nodes that serve several dialects at once: who is on a wrong card, and which card is sold twice.

Like tests/checker.py it shares no code with Aliquot: it counts what containers ask for by the units of each dialect,
and believes a placement only for which cards it names.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from tests.checker import Inside

_WHOLE = 100
_MPS_SLOTS = 10
_BLOCK_MIB = 256
_GIB = 1024


@dataclass(frozen=True)
class Part:
    """A part of one card."""

    cores: int = 0
    mib: int = 0

    def __add__(self, other: "Part") -> "Part":
        return Part(self.cores + other.cores, self.mib + other.mib)

    def __or__(self, other: "Part") -> "Part":
        """Enough for either."""
        return Part(max(self.cores, other.cores), max(self.mib, other.mib))


Named = tuple[str, str]
"""A container by the names of its pod and its own."""
_Machines = Mapping[str, Mapping[str, dict[str, Any]]]
"""The cards of each node by their UUIDs."""
_Sums = dict[tuple[str, str], Part]
"""By node and card."""


@dataclass(frozen=True)
class _Held:
    """What a container has of one card."""

    container: dict[str, Any]
    uuid: str
    part: Part
    is_init: bool
    """It gives everything back before the next container starts."""


def findings(
    pods: Iterable[dict[str, Any]], nodes: Iterable[dict[str, Any]], inside: Mapping[Named, Sequence[Inside]]
) -> list[str]:
    """Everything wrong with bound pods. One without a placement must see no card. `inside` has what a container saw at
    each of its starts. A container that nobody looked into is no finding."""
    machines = _machines(nodes)
    found, sold = list[str](), _Sums()
    for pod in (pod for pod in pods if pod["spec"].get("nodeName")):
        node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
        found += [f"{name} {what}" for what in _wrong(pod, machines[node], inside)]
        if not _ended(pod):
            for uuid, part in _peaks(_held(pod, machines[node])).items():
                sold[node, uuid] = sold.get((node, uuid), Part()) + part
    return found + list(_oversold(sold, machines, "sold"))


def crowded(pods: Iterable[dict[str, Any]], nodes: Iterable[dict[str, Any]], alive: Set[Named]) -> list[str]:
    """Cards of which containers that live have more than there is, whatever the API says about their pods."""
    machines, used = _machines(nodes), _Sums()
    for pod in (pod for pod in pods if pod["spec"].get("nodeName")):
        node = pod["spec"]["nodeName"]
        for held in _held(pod, machines[node]):
            if (pod["metadata"]["name"], held.container["name"]) in alive:
                used[node, held.uuid] = used.get((node, held.uuid), Part()) + held.part
    return list(_oversold(used, machines, "in use"))


def _oversold(sums: _Sums, machines: _Machines, what: str) -> Iterator[str]:
    for (node, uuid), part in sums.items():
        mib = machines[node][uuid]["mib"]
        if part.cores > _WHOLE:
            yield f"{part.cores} % of the cores of card {uuid} of {node} are {what}"
        if part.mib > mib:
            yield f"{part.mib} MiB of card {uuid} of {node} are {what}, which has {mib}"


def _wrong(
    pod: dict[str, Any], machine: Mapping[str, dict[str, Any]], inside: Mapping[Named, Sequence[Inside]]
) -> Iterator[str]:
    node = _record(pod).get("node")
    if node is not None and node != pod["spec"]["nodeName"]:
        yield f"is placed on {node} and bound to {pod['spec']['nodeName']}"
    placed = _placed(pod)
    for uuid in sorted({uuid for cards in placed.values() for uuid in cards} - machine.keys()):
        yield f"is placed on {uuid}, which {pod['spec']['nodeName']} does not have"
    for container in _containers(pod):
        name = container["name"]
        for seen in inside.get((pod["metadata"]["name"], name), ()):
            yield from (f"({name}) {what}" for what in _wrong_inside(seen, placed.get(name, []), machine))


def _wrong_inside(seen: Inside, placed: list[str], machine: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    visible = seen.environment.get("NVIDIA_VISIBLE_DEVICES", "")
    if visible != ",".join(placed):
        yield f"sees the cards {visible}, and is placed on {placed}"
    minors = sorted(minor for major, minor in seen.devices.values() if (major, minor) != (195, 255) and major == 195)
    if minors != sorted(machine[uuid]["minor"] for uuid in placed if uuid in machine):
        yield f"sees the device nodes {minors}, and is placed on {placed}"


def _peaks(held: Iterable[_Held]) -> dict[str, Part]:
    """The most that a pod has of each card at any one time; its containers start in this order."""
    staying, peaks = dict[str, Part](), dict[str, Part]()
    for each in held:
        now = staying.get(each.uuid, Part()) + each.part
        peaks[each.uuid] = peaks.get(each.uuid, Part()) | now
        if not each.is_init:
            staying[each.uuid] = now
    return peaks


def _held(pod: dict[str, Any], machine: Mapping[str, dict[str, Any]]) -> Iterator[_Held]:
    """In the order in which the containers start."""
    spec, placed = pod["spec"], _placed(pod)
    for container in _containers(pod):
        cards = placed.get(container["name"], [])
        is_init = container not in spec["containers"] and container.get("restartPolicy") != "Always"
        for uuid in cards:
            if uuid in machine:
                part = _asked(container, pod["metadata"]["annotations"], machine[uuid], len(cards))
                yield _Held(container, uuid, part, is_init)


def _containers(pod: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """In the order in which they start."""
    return *pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]


def _asked(container: dict[str, Any], wishes: Mapping[str, str], card: dict[str, Any], cards: int) -> Part:
    """What a container takes of one of its cards."""
    limits = {name: _number(amount) for name, amount in container["resources"]["limits"].items()}
    whole = Part(_WHOLE, card["mib"])
    names = {name.partition("/")[2]: amount for name, amount in limits.items()}
    if "aliquot.io/gpu" in limits:
        return Part(int(wishes["aliquot.io/cores"]), int(wishes["aliquot.io/memory"].removesuffix("Mi")))
    if "nvidia.com/gpu" in limits:
        return _asked_of_hami(names, card["mib"])
    if "gpu-percent" in names:
        percent = names["gpu-percent"]
        return whole if percent >= _WHOLE else Part(percent, card["mib"] * percent // 100)
    if "vcuda-core" in names:
        return whole if names["vcuda-core"] >= _WHOLE else Part(names["vcuda-core"], names["vcuda-memory"] * _BLOCK_MIB)
    if "gpu-core" in names:
        unit = _GIB if "nano-gpu.io/gpu-core" in limits else 1
        return whole if names["gpu-core"] >= _WHOLE else Part(names["gpu-core"], names["gpu-memory"] * unit)
    if "mpsgpu" in names:
        return Part(_WHOLE // _MPS_SLOTS, card["mib"] // _MPS_SLOTS)
    if "gpu-mem" in names:
        return Part(0, names["gpu-mem"] * _GIB // cards)
    return whole


def _asked_of_hami(names: Mapping[str, int], mib: int) -> Part:
    """Without a size it is a whole card, as NVIDIA's own plugin gives it."""
    memory = names.get("gpumem") or mib * names.get("gpumem-percentage", _WHOLE) // 100
    if (memory == mib and "gpucores" not in names) or names.get("gpucores") == _WHOLE:
        return Part(_WHOLE, mib)
    return Part(names.get("gpucores", 0), memory)


def _number(amount: str) -> int:
    """The API server writes 1000 as 1k."""
    return int(amount.removesuffix("k")) * (1000 if amount.endswith("k") else 1)


def _machines(nodes: Iterable[dict[str, Any]]) -> _Machines:
    return {node["metadata"]["name"]: _cards(node) for node in nodes}


def _cards(node: dict[str, Any]) -> dict[str, dict[str, Any]]:
    record = node["metadata"].get("annotations", {}).get("aliquot.io/inventory", '{"gpus": []}')
    return {gpu["uuid"]: gpu for gpu in json.loads(record)["gpus"]}


def _record(pod: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(pod["metadata"].get("annotations", {}).get("aliquot.io/placement", "{}"))
    return record


def _placed(pod: dict[str, Any]) -> dict[str, list[str]]:
    """The cards of each container that has some."""
    containers = _record(pod).get("containers", {})
    return {name: [part["uuid"] for part in parts] for name, parts in containers.items()}


def _ended(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")
