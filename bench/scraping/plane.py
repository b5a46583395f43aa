"""A control plane that has seen nodes, pods and the Leases of agents, without an API server."""

import msgspec

from aliquot.clock import SystemClock
from aliquot.control import ControlPlane
from aliquot.control.state.events import NodeSeen, PodSeen
from aliquot.kube import Client
from aliquot.kube.access import Access
from aliquot.kube.resources import Lease, LeaseSpec
from aliquot.model import Node, Pod
from aliquot.model.kubernetes import Metadata
from aliquot.model.load import LOAD, CardLoad, NodeLoad, PodLoad, write_load
from aliquot.model.records import NODE_LEASES
from bench.mirroring import objects

NOWHERE = "http://127.0.0.1:9"


def seen_plane(nodes: int, pods: int) -> ControlPlane:
    """To be called while an event loop runs."""
    plane = ControlPlane(Client(Access(NOWHERE)), SystemClock())
    for number in range(nodes):
        plane.cluster.apply(NodeSeen(msgspec.json.decode(objects.node(number, 1), type=Node)))
    for number in range(pods):
        plane.cluster.apply(PodSeen(msgspec.json.decode(objects.pod(number, nodes, 1), type=Pod)))
    for name in plane.cluster.totals.nodes:
        plane.heartbeats.see(None, lease(plane, name, 0))
        plane.heartbeats.see(lease(plane, name, 0), lease(plane, name, 1))
    return plane


def lease(plane: ControlPlane, node: str, beat: int) -> Lease:
    """As the node's agent writes it the nth time."""
    cards = {gpu.uuid: CardLoad(0.4, 2**33, 200.0) for gpu in plane.cluster.cards(node).gpus}
    pods = {
        entry.uid: {uuid: PodLoad(2**32, 0.2) for uuid in entry.charges} for entry in plane.cluster.ledger.entries(node)
    }
    annotations = {LOAD: write_load(NodeLoad(float(beat), cards, pods))}
    metadata = Metadata(name=node, namespace=NODE_LEASES, uid=node, annotations=annotations)
    return Lease(metadata=metadata, spec=LeaseSpec(node, 60, None, f"{beat}"))
