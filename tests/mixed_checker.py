"""A witness for nodes that serve several dialects at once: who is on a wrong card, and which card is sold twice.

Like tests/checker.py it shares no code with Aliquot: it counts what containers ask for by the units of each dialect,
and believes a placement only for which cards it names.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.checker import Inside

_WHOLE = 100
_MPS_SLOTS = 10
_BLOCK_MIB = 256
_GIB = 1024


@dataclass(frozen=True)
class Part:
    """What a container takes of each of its cards."""

    cores: int
    mib: int


def findings(
    pods: Iterable[dict[str, Any]], nodes: Iterable[dict[str, Any]], inside: Mapping[str, Inside]
) -> list[str]:
    """Everything wrong with pods of one container. `inside` has what containers have seen, by the pod's name. A
    container that nobody looked into is no finding."""
    machines = {node["metadata"]["name"]: _cards(node) for node in nodes}
    found, cores, mib = list[str](), defaultdict[tuple[str, str], int](int), defaultdict[tuple[str, str], int](int)
    for pod in pods:
        node, name = pod["spec"].get("nodeName", ""), pod["metadata"]["name"]
        placed = _placed(pod)
        if not node or not placed:
            continue
        machine = machines[node]
        if name in inside:
            found += [f"{name} {what}" for what in _wrong(inside[name], placed, machine)]
        for uuid in placed if not _ended(pod) else ():
            if uuid not in machine:
                found.append(f"{name} is placed on {uuid}, which {node} does not have")
                continue
            part = _asked(pod, machine[uuid], len(placed))
            cores[node, uuid] += part.cores
            mib[node, uuid] += part.mib
    for (node, uuid), sold in cores.items():
        if sold > _WHOLE:
            found.append(f"{sold} % of the cores of card {uuid} of {node} are sold")
    for (node, uuid), sold in mib.items():
        if sold > machines[node][uuid]["mib"]:
            found.append(f"{sold} MiB of card {uuid} of {node} are sold, which has {machines[node][uuid]['mib']}")
    return found


def _wrong(seen: Inside, placed: list[str], machine: Mapping[str, dict[str, Any]]) -> Iterable[str]:
    if seen.environment.get("NVIDIA_VISIBLE_DEVICES") != ",".join(placed):
        yield f"sees the cards {seen.environment.get('NVIDIA_VISIBLE_DEVICES')}, and is placed on {placed}"
    minors = sorted(minor for major, minor in seen.devices.values() if (major, minor) != (195, 255) and major == 195)
    if minors != sorted(machine[uuid]["minor"] for uuid in placed if uuid in machine):
        yield f"sees the device nodes {minors}, and is placed on {placed}"


def _asked(pod: dict[str, Any], card: dict[str, Any], cards: int) -> Part:
    """What the pod's container takes of one of its cards."""
    (container,) = pod["spec"]["containers"]
    limits = {name: _number(amount) for name, amount in container["resources"]["limits"].items()}
    wishes, whole = pod["metadata"].get("annotations", {}), Part(_WHOLE, card["mib"])
    names = {name.partition("/")[2]: amount for name, amount in limits.items()}
    if "aliquot.io/gpu" in limits:
        return Part(int(wishes["aliquot.io/cores"]), int(wishes["aliquot.io/memory"].removesuffix("Mi")))
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


def _number(amount: str) -> int:
    """The API server writes 1000 as 1k."""
    return int(amount.removesuffix("k")) * (1000 if amount.endswith("k") else 1)


def _cards(node: dict[str, Any]) -> dict[str, dict[str, Any]]:
    record = node["metadata"].get("annotations", {}).get("aliquot.io/inventory", '{"gpus": []}')
    return {gpu["uuid"]: gpu for gpu in json.loads(record)["gpus"]}


def _placed(pod: dict[str, Any]) -> list[str]:
    record = pod["metadata"].get("annotations", {}).get("aliquot.io/placement")
    containers = json.loads(record)["containers"] if record else {}
    return [part["uuid"] for parts in containers.values() for part in parts]


def _ended(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")
