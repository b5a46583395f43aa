"""An independent witness: reads the API, and what real containers see inside, and says what is wrong.

It shares no code with Aliquot on purpose: it must not repeat a mistake of the ledger. Its findings are sentences; none
means that no card is over-sold and that every pod runs once, on the card of its annotation.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_RESOURCE = "aliyun.com/gpu-mem"
_GPU_MAJOR = 195
_CONTROL_MINOR = 255
_NO_CARDS: dict[str, Any] = {"unitMiB": 1, "gpus": []}


@dataclass(frozen=True)
class Inside:
    """What a container sees: its variables, and (major, minor) of each device node."""

    environment: Mapping[str, str]
    devices: Mapping[str, tuple[int, int]]


@dataclass
class Cluster:
    """Objects as the API gives them, and containers as seen from inside, by (pod UID, container).

    `inside` is None where containers are not real; where they are, every running one must have been looked into.
    """

    pods: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    inside: dict[tuple[str, str], Inside] | None = None


def epochs(pods: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """In which term of leadership each pod was placed, where it says so."""
    key = "aliquot.io/epoch"
    written = {_name(pod): pod["metadata"].get("annotations", {}).get(key, "") for pod in pods}
    return {name: int(epoch) for name, epoch in written.items() if epoch}


def unplaced(cluster: Cluster, expected: Iterable[str]) -> list[str]:
    """What is wrong where nodes are only objects and nothing runs: pods that are not there, not bound, or bound without
    a card of their node; and cards that are sold beyond their size."""
    machines = {node["metadata"]["name"]: _inventory(node) for node in cluster.nodes}
    pods = {_name(pod): pod for pod in cluster.pods}
    found = list(_oversold([pod for pod in cluster.pods if _units(pod)], machines))
    for name in expected:
        pod = pods.get(name)
        node = pod["spec"].get("nodeName", "") if pod else ""
        if pod is None or not node:
            found.append(f"{name} is {'not bound' if pod else 'lost'}")
        else:
            machine = machines.get(node, _NO_CARDS)
            found += [f"{name}: {what}" for what in _annotations(pod, machine, assigned="false")]
    return found


def findings(cluster: Cluster, expected: Iterable[str] = ()) -> list[str]:
    """Everything wrong with a cluster at rest; `expected` are pods (namespace/name) that must be running."""
    machines = {node["metadata"]["name"]: _inventory(node) for node in cluster.nodes}
    pods = [pod for pod in cluster.pods if _units(pod) and not _ended(pod)]
    found = [*_oversold(pods, machines), *_missing(cluster.pods, expected)]
    for pod in pods:
        if pod["status"].get("phase") == "Running":
            machine = machines.get(pod["spec"]["nodeName"], _NO_CARDS)
            wrong = [*_runs_once(pod), *_annotations(pod, machine, assigned="true")]
            if cluster.inside is not None:
                wrong += _containers(pod, machine, cluster.inside)
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


def _annotations(pod: dict[str, Any], machine: dict[str, Any], *, assigned: str) -> Iterable[str]:
    record = _placement(pod)
    if record is None:
        yield "runs without a placement"
        return
    if record["node"] != pod["spec"]["nodeName"]:
        yield f"is placed on {record['node']} and runs on {pod['spec']['nodeName']}"
    cards = _by_uuid(machine)
    placed = _cards_of(pod)
    for uuid in sorted(placed - cards.keys()):
        yield f"card {uuid} is not in its node's inventory"
    annotations = pod["metadata"]["annotations"]
    expected = {
        "ASSIGNED": assigned,
        "IDX": _joined(cards, placed, lambda card: card["index"]),
        "DEV": _joined(cards, placed, lambda card: card["mib"] // machine["unitMiB"]),
        "POD": str(_units(pod)),
    }
    for key, wanted in expected.items():
        if annotations.get(f"ALIYUN_COM_GPU_MEM_{key}") != wanted:
            yield f"annotation {key} is {annotations.get(f'ALIYUN_COM_GPU_MEM_{key}')!r}, not {wanted!r}"
    if not annotations.get("ALIYUN_COM_GPU_MEM_ASSUME_TIME", "").isdigit():
        yield "annotation ASSUME_TIME is no time"


def _containers(
    pod: dict[str, Any], machine: dict[str, Any], inside: Mapping[tuple[str, str], Inside]
) -> Iterable[str]:
    """What each GPU container sees is the card of its placement, and a container without GPU sees none."""
    parts = (_placement(pod) or {}).get("containers", {})
    for container in pod["spec"]["containers"]:
        name = container["name"]
        seen = inside.get((pod["metadata"]["uid"], name))
        if seen is None:
            yield f"nobody looked into container {name}"
            continue
        uuids = {part["uuid"] for part in parts.get(name, [])}
        wrong = [*_devices(seen, uuids, machine), *_variables(seen, pod, container, uuids, machine)]
        yield from (f"container {name} {what}" for what in wrong)


def _devices(inside: Inside, uuids: set[str], machine: dict[str, Any]) -> Iterable[str]:
    nodes = inside.devices.values()
    minors = sorted(minor for major, minor in nodes if major == _GPU_MAJOR and minor != _CONTROL_MINOR)
    placed = sorted(card["minor"] for uuid, card in _by_uuid(machine).items() if uuid in uuids)
    if minors != placed:
        yield f"sees the device nodes {minors}, and its cards are {placed}"


def _variables(
    inside: Inside, pod: dict[str, Any], container: dict[str, Any], uuids: set[str], machine: dict[str, Any]
) -> Iterable[str]:
    if not _asks(container):
        return
    cards = _by_uuid(machine)
    expected = {
        "NVIDIA_VISIBLE_DEVICES": ",".join(sorted(uuids)),
        "ALIYUN_COM_GPU_MEM_IDX": _joined(cards, uuids, lambda card: card["index"]),
        "ALIYUN_COM_GPU_MEM_DEV": _joined(cards, uuids, lambda card: card["mib"] // machine["unitMiB"]),
        "ALIYUN_COM_GPU_MEM_POD": str(_units(pod)),
        "ALIYUN_COM_GPU_MEM_CONTAINER": str(_asks(container)),
    }
    for name, wanted in expected.items():
        if inside.environment.get(name) != wanted:
            yield f"has {name}={inside.environment.get(name)}, not {wanted}"


def _by_uuid(machine: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {gpu["uuid"]: gpu for gpu in machine["gpus"]}


def _joined(cards: Mapping[str, dict[str, Any]], uuids: set[str], what: Callable[[dict[str, Any]], int]) -> str:
    return ",".join(str(what(cards[uuid])) for uuid in sorted(uuids & cards.keys()))


def _inventory(node: dict[str, Any]) -> dict[str, Any]:
    record = node["metadata"].get("annotations", {}).get("aliquot.io/inventory")
    inventory: dict[str, Any] = json.loads(record) if record else _NO_CARDS
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


def _name(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
