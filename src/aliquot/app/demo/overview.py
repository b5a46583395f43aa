"""The state of the demo as text and screen show it: cards, the pods that hold them, and why other pods wait."""

from collections.abc import Iterator
from dataclasses import dataclass

from aliquot.app.demo.cluster import DemoCluster
from aliquot.ledger import Entry
from aliquot.model import CORES, Charge, Gpu, Pod

_GIB = 1024


@dataclass(frozen=True)
class CardUsage:
    """A card or a MIG instance, and what pods hold of it. Cards that are cut into instances are left out.

    `busy` is the percentage of time that its pods use the card, according to their scripts. `serves` lists the
    dialects of the node; a star at its end means that the node runs the real agent.
    """

    node: str
    serves: str
    gpu: Gpu
    used: Charge
    busy: int
    pods: tuple[str, ...]


@dataclass(frozen=True)
class PodUsage:
    """What a pod holds, as text."""

    pod: str
    dialect: str
    status: str
    node: str
    gpus: str
    cores: str
    memory: str
    hand_over: str


def cards(demo: DemoCluster) -> Iterator[CardUsage]:
    cluster = demo.plane.cluster
    for name, machine in demo.machines.items():
        used, entries = cluster.ledger.used(name), cluster.ledger.entries(name)
        uses = demo.nodes[name].kubelet.uses
        known = cluster.cards(name)
        for gpu in (gpu for gpu in known.gpus if gpu.uuid not in known.parents):
            holders = [entry for entry in entries if gpu.uuid in entry.charges]
            busy = min(100, sum(uses.get(entry.uid, 0) for entry in holders))
            names = tuple(sorted(_name(entry.owner.pod) for entry in holders))
            serves = "+".join(machine.dialects) + ("*" if machine.has_agent else "")
            yield CardUsage(name, serves, gpu, used.get(gpu.uuid, Charge()), busy, names)


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def pod_usage(demo: DemoCluster, pod: Pod) -> PodUsage:
    """What a pod holds. Without a card most fields are empty, and `status` says why."""
    node = pod.spec.node_name
    entry = demo.plane.cluster.ledger.entry(pod.metadata.uid, node) if node else None
    if entry is None or not entry.charges:
        return PodUsage(pod.key, "", f"{phase(pod)}: {why(pod)}", node, "", "", "", "")
    machine = demo.machines.get(node)
    charge = next(iter(entry.charges.values()))
    each = " each" if len(entry.charges) > 1 else ""
    return PodUsage(
        pod=pod.key,
        dialect=entry.placement.dialect,
        status=phase(pod),
        node=node,
        gpus=", ".join(_card(demo, entry, uuid) for uuid in entry.charges),
        cores=_cores(charge) + each,
        memory=f"{charge.mib} MiB{each}",
        hand_over=machine.hand_over if machine else "",
    )


def _card(demo: DemoCluster, entry: Entry, uuid: str) -> str:
    gpu = demo.plane.cluster.cards(entry.node).by_uuid.get(uuid)
    if gpu is None:
        return f"{uuid} (gone)"
    return f"{gpu.index}: {gpu.model}" + (f" MIG {gpu.profile}" if gpu.profile else "")


def _cores(charge: Charge) -> str:
    if charge.slots:
        return f"{charge.slots} MPS slot" + ("s" if charge.slots > 1 else "")
    return "all" if charge.cores == CORES else f"{charge.cores}%" if charge.cores else "shared"


def waiting(demo: DemoCluster) -> list[tuple[str, list[str]]]:
    """Each reason why pods wait, with the names of these pods, oldest first."""
    reasons: dict[str, list[str]] = {}
    for pod in sorted(demo.plane.pods.all(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.key)):
        if phase(pod) == "Pending":
            reasons.setdefault(why(pod), []).append(pod.metadata.name)
    return list(reasons.items())


def phase(pod: Pod) -> str:
    return pod.status.phase or "Pending"


def why(pod: Pod) -> str:
    """Why a pod does not run, according to its status."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and not pod.spec.node_name:
            return condition.message or ""
    for status in pod.status.container_statuses or ():
        if status.state.waiting is not None and status.state.waiting.message:
            return status.state.waiting.message
    return "starting" if pod.spec.node_name else "not placed yet"


def size(mib: int) -> str:
    return f"{mib / _GIB:.0f}"
