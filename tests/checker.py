"""An independent witness: reads the API, and what real containers see inside, and says what is wrong.

It shares no code with Aliquot on purpose: it must not repeat a mistake of the ledger. Its findings are sentences; none
means that no card is over-sold and that every pod runs once, on the card of its annotation.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_RESOURCE = "aliyun.com/gpu-mem"
_GPU_MAJOR = 195
_CONTROL_MINOR = 255


@dataclass(frozen=True)
class Inside:
    """What a container sees: its variables, and (major, minor) of each device node."""

    environment: Mapping[str, str]
    devices: Mapping[str, tuple[int, int]]


@dataclass
class Cluster:
    """Objects as the API gives them, and containers as seen from inside, by (pod UID, container)."""

    pods: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    inside: dict[tuple[str, str], Inside] = field(default_factory=dict)


def findings(cluster: Cluster, expected: Iterable[str] = ()) -> list[str]:
    """Everything wrong with a cluster at rest; `expected` are pods (namespace/name) that must be running."""
    pods = [pod for pod in cluster.pods if _units(pod) and not _ended(pod)]
    found = [*_oversold(pods, cluster.nodes), *_missing(cluster.pods, expected)]
    for pod in pods:
        if pod["status"].get("phase") == "Running":
            found += [f"{_name(pod)}: {what}" for what in (*_runs_once(pod), *_right_card(pod, cluster))]
    return found


def _oversold(pods: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> Iterable[str]:
    sold: dict[tuple[str, str], int] = defaultdict(int)
    for pod in pods:
        for uuid, mib in _held(pod).items():
            sold[pod["spec"]["nodeName"], uuid] += mib
    sizes = {(node["metadata"]["name"], gpu["uuid"]): gpu["mib"] for node in nodes for gpu in _cards(node)}
    for (node, uuid), mib in sold.items():
        if mib > sizes.get((node, uuid), 0):
            yield f"card {uuid} of {node} has {sizes.get((node, uuid), 0)} MiB and {mib} MiB are sold"


def _held(pod: dict[str, Any]) -> dict[str, int]:
    """MiB per card: main containers together, init containers one at a time."""
    record = _placement(pod)
    if record is None or "nodeName" not in pod["spec"]:
        return {}
    inits = {c["name"] for c in pod["spec"].get("initContainers", []) if c.get("restartPolicy") != "Always"}
    together: dict[str, int] = defaultdict(int)
    alone: dict[str, int] = defaultdict(int)
    for container, parts in record["containers"].items():
        for part in parts:
            if container in inits:
                alone[part["uuid"]] = max(alone[part["uuid"]], part["mib"])
            else:
                together[part["uuid"]] += part["mib"]
    return {uuid: max(together[uuid], alone[uuid]) for uuid in {*together, *alone}}


def _missing(pods: list[dict[str, Any]], expected: Iterable[str]) -> Iterable[str]:
    phases = {_name(pod): pod["status"].get("phase") for pod in pods}
    for name in expected:
        if phases.get(name) != "Running":
            yield f"{name} should run and is {phases.get(name, 'gone')}"


def _runs_once(pod: dict[str, Any]) -> Iterable[str]:
    for status in pod["status"].get("containerStatuses", []):
        if status["restartCount"]:
            yield f"container {status['name']} was started {status['restartCount'] + 1} times"
        if "running" not in status["state"]:
            yield f"container {status['name']} does not run"


def _right_card(pod: dict[str, Any], cluster: Cluster) -> Iterable[str]:
    annotations = pod["metadata"].get("annotations", {})
    record = _placement(pod)
    if record is None:
        yield "runs without a placement"
        return
    if record["node"] != pod["spec"]["nodeName"]:
        yield f"is placed on {record['node']} and runs on {pod['spec']['nodeName']}"
    cards = {part["uuid"]: part for parts in record["containers"].values() for part in parts}
    if annotations.get("ALIYUN_COM_GPU_MEM_ASSIGNED") != "true":
        yield f"ASSIGNED is {annotations.get('ALIYUN_COM_GPU_MEM_ASSIGNED')!r}"
    if {annotations.get("ALIYUN_COM_GPU_MEM_IDX")} != {str(card["index"]) for card in cards.values()}:
        yield f"IDX is {annotations.get('ALIYUN_COM_GPU_MEM_IDX')} and the placement names {sorted(cards)}"
    if annotations.get("ALIYUN_COM_GPU_MEM_POD") != str(_units(pod)):
        yield f"POD is {annotations.get('ALIYUN_COM_GPU_MEM_POD')} and the pod asks {_units(pod)}"
    known = {gpu["uuid"] for node in cluster.nodes for gpu in _cards(node)}
    for uuid in sorted(cards.keys() - known):
        yield f"card {uuid} is in no inventory"
    for container, parts in record["containers"].items():
        inside = cluster.inside.get((pod["metadata"]["uid"], container))
        if inside is not None:
            yield from (f"container {container} {what}" for what in _inside(inside, parts))


def _inside(inside: Inside, parts: list[dict[str, Any]]) -> Iterable[str]:
    nodes = inside.devices.values()
    minors = sorted(minor for major, minor in nodes if major == _GPU_MAJOR and minor != _CONTROL_MINOR)
    if minors != sorted(part["minor"] for part in parts):
        yield f"sees the cards {minors}, placed on {[part['minor'] for part in parts]}"
    visible = inside.environment.get("NVIDIA_VISIBLE_DEVICES")
    if visible != ",".join(part["uuid"] for part in parts):
        yield f"has NVIDIA_VISIBLE_DEVICES={visible}"


def _cards(node: dict[str, Any]) -> list[dict[str, Any]]:
    record = node["metadata"].get("annotations", {}).get("aliquot.io/inventory")
    gpus: list[dict[str, Any]] = json.loads(record)["gpus"] if record else []
    return gpus


def _placement(pod: dict[str, Any]) -> dict[str, Any] | None:
    record = pod["metadata"].get("annotations", {}).get("aliquot.io/placement")
    placement: dict[str, Any] | None = json.loads(record) if record else None
    return placement


def _units(pod: dict[str, Any]) -> int:
    limits = [c.get("resources", {}).get("limits", {}) for c in pod["spec"]["containers"]]
    return sum(int(limit.get(_RESOURCE, 0)) for limit in limits)


def _ended(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _name(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
