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
    machines = {node["metadata"]["name"]: _inventory(node) for node in cluster.nodes}
    pods = [pod for pod in cluster.pods if _units(pod) and not _ended(pod)]
    found = [*_oversold(pods, machines), *_missing(cluster.pods, expected)]
    for pod in pods:
        if pod["status"].get("phase") == "Running":
            cards = {gpu["uuid"]: gpu for gpu in machines[pod["spec"]["nodeName"]]["gpus"]}
            wrong = (*_runs_once(pod), *_annotations(pod, cards), *_containers(pod, cards, cluster.inside))
            found += [f"{_name(pod)}: {what}" for what in wrong]
    return found


def _oversold(pods: list[dict[str, Any]], machines: Mapping[str, dict[str, Any]]) -> Iterable[str]:
    """Sizes come from what the pods ask and the nodes have; from the placement only which card it is."""
    sold: dict[tuple[str, str], int] = defaultdict(int)
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        if node in machines:
            for uuid in _cards_of(pod):
                sold[node, uuid] += _units(pod) * machines[node]["unitMiB"]
    sizes = {(node, gpu["uuid"]): gpu["mib"] for node, machine in machines.items() for gpu in machine["gpus"]}
    for card, mib in sold.items():
        if mib > sizes.get(card, 0):
            yield f"card {card[1]} of {card[0]} has {sizes.get(card, 0)} MiB and {mib} MiB are sold"


def _missing(pods: list[dict[str, Any]], expected: Iterable[str]) -> Iterable[str]:
    phases = {_name(pod): pod["status"].get("phase") for pod in pods}
    for name in expected:
        if phases.get(name) != "Running":
            yield f"{name} should run and is {phases.get(name, 'gone')}"


def _runs_once(pod: dict[str, Any]) -> Iterable[str]:
    statuses = {status["name"]: status for status in pod["status"].get("containerStatuses", [])}
    for container in pod["spec"]["containers"]:
        status = statuses.get(container["name"])
        if status is None or "running" not in status["state"]:
            yield f"container {container['name']} does not run"
        elif status["restartCount"]:
            yield f"container {container['name']} was started {status['restartCount'] + 1} times"


def _annotations(pod: dict[str, Any], cards: Mapping[str, dict[str, Any]]) -> Iterable[str]:
    annotations = pod["metadata"].get("annotations", {})
    record = _placement(pod)
    if record is None:
        yield "runs without a placement"
        return
    if record["node"] != pod["spec"]["nodeName"]:
        yield f"is placed on {record['node']} and runs on {pod['spec']['nodeName']}"
    placed = _cards_of(pod)
    for uuid in sorted(placed - cards.keys()):
        yield f"card {uuid} is not in its node's inventory"
    expected = {
        "ASSIGNED": {"true"},
        "IDX": {str(cards[uuid]["index"]) for uuid in placed & cards.keys()},
        "POD": {str(_units(pod))},
    }
    for key, wanted in expected.items():
        if {annotations.get(f"ALIYUN_COM_GPU_MEM_{key}")} != wanted:
            yield f"{key} is {annotations.get(f'ALIYUN_COM_GPU_MEM_{key}')!r}, not {sorted(wanted)}"


def _containers(
    pod: dict[str, Any], cards: Mapping[str, dict[str, Any]], inside: Mapping[tuple[str, str], Inside]
) -> Iterable[str]:
    """What each GPU container sees is the card of its placement, and a container without GPU sees none."""
    containers = (_placement(pod) or {}).get("containers", {})
    for container in pod["spec"]["containers"]:
        seen = inside.get((pod["metadata"]["uid"], container["name"]))
        if seen is not None:
            uuids = [part["uuid"] for part in containers.get(container["name"], [])]
            yield from (f"container {container['name']} {what}" for what in _inside(seen, uuids, cards))


def _inside(inside: Inside, uuids: list[str], cards: Mapping[str, dict[str, Any]]) -> Iterable[str]:
    nodes = inside.devices.values()
    minors = sorted(minor for major, minor in nodes if major == _GPU_MAJOR and minor != _CONTROL_MINOR)
    placed = sorted(cards[uuid]["minor"] for uuid in uuids if uuid in cards)
    if minors != placed:
        yield f"sees the device nodes {minors}, and its cards are {placed}"
    visible = inside.environment.get("NVIDIA_VISIBLE_DEVICES", "")
    if visible != ",".join(uuids):
        yield f"has NVIDIA_VISIBLE_DEVICES={visible}, and its cards are {uuids}"


def _inventory(node: dict[str, Any]) -> dict[str, Any]:
    record = node["metadata"].get("annotations", {}).get("aliquot.io/inventory")
    inventory: dict[str, Any] = json.loads(record) if record else {"unitMiB": 1, "gpus": []}
    return inventory


def _placement(pod: dict[str, Any]) -> dict[str, Any] | None:
    record = pod["metadata"].get("annotations", {}).get("aliquot.io/placement")
    placement: dict[str, Any] | None = json.loads(record) if record else None
    return placement


def _cards_of(pod: dict[str, Any]) -> set[str]:
    containers = (_placement(pod) or {}).get("containers", {})
    return {part["uuid"] for parts in containers.values() for part in parts}


def _units(pod: dict[str, Any]) -> int:
    """The most that the pod's containers ask for at any one time, init containers and sidecars counted by kubelet's
    order of starting: one moment for each init container, and one for all main containers together."""
    moments, sidecars = [], 0
    for container in pod["spec"].get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            sidecars += _asks(container)
        else:
            moments.append(sidecars + _asks(container))
    moments.append(sidecars + sum(_asks(container) for container in pod["spec"]["containers"]))
    return max(moments)


def _asks(container: dict[str, Any]) -> int:
    return int(container.get("resources", {}).get("limits", {}).get(_RESOURCE, 0))


def _ended(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _name(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
