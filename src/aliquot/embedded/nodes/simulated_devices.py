"""The devices of a fully simulated node: no sockets and no agent process, but the agent's own rules.

kubelet's device ids are just a count here, and its grants are in memory. The agent's own `HandOver` decides what is
handed over: it reads the placement, refuses to over-commit the node, and marks the pod as the dialect's original does.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache

from aliquot.agent import cdi
from aliquot.agent.checkpoint import Grant
from aliquot.agent.device_list import offered
from aliquot.agent.devices import ContainerEdits, DeviceSource
from aliquot.agent.handover import HandOver
from aliquot.agent.handover_record import HandOverRecord
from aliquot.agent.kubelet_records import PodGrants
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_pods import NodePods
from aliquot.clock import Clock
from aliquot.dialects import Dialect, Dialects
from aliquot.embedded.kubelet_devices import AdmissionError
from aliquot.embedded.nodes.devices import Inside
from aliquot.errors import AliquotError, Refused
from aliquot.kube import Client
from aliquot.model import NodeGpus, Pod
from aliquot.model.quantity import whole


class SimulatedDevices:
    """`pods` returns the pods of the node as the API server shows them."""

    def __init__(
        self,
        served: Sequence[Dialect],
        dialects: Dialects,
        cards: NodeCards,
        devices: DeviceSource,
        pods: Callable[[], Sequence[Pod]],
        client: Client,
        clock: Clock,
    ) -> None:
        """Raises BadConfig for cards that cannot be offered."""
        self.changed = asyncio.Event()
        self._pods = NodePods(pods)
        self._hand_over = HandOver(served, dialects, self, self._pods, cards, devices, self, client, clock)
        self._served = served
        self._capacity: dict[str, int] = {}
        self._offer(cards.current)
        cards.changed.subscribe(self._offer)
        self._admitted: dict[str, Mapping[str, int]] = {}
        self._grants: dict[str, list[Grant]] = {}
        self._edits: dict[str, dict[str, ContainerEdits]] = {}
        """What the hand-over wrote, by pod UID and promised name."""

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """And nothing to close."""

    def capacity(self) -> Mapping[str, int]:
        return self._capacity

    def _offer(self, cards: NodeGpus) -> None:
        """kubelet never forgets a resource: one that the cards no longer have stays, with a count of 0."""
        alike = _without_names(cards)
        counts = {name: count for dialect in self._served for name, count in _counts(dialect, alike)}
        self._capacity = dict.fromkeys(self._capacity, 0) | counts
        self.changed.set()

    async def admit(self, pod: Pod) -> None:
        asked = {resource: pod.asks(resource) for resource in self._capacity}
        for resource, amount in asked.items():
            free = self._capacity[resource] - sum(other[resource] for other in self._admitted.values())
            if amount > free:
                raise AdmissionError(f"Requested: {amount}, available: {free} of {resource}")
        uid = pod.metadata.uid
        self._admitted[uid] = asked
        self._grants[uid] = [
            _grant(uid, container.name, resource)
            for container, _ in pod.containers()
            for resource, amount in container.limits.items()
            if resource in self._capacity and whole(str(amount)) > 0
        ]

    async def start(self, pod: Pod, container: str) -> Inside:
        inside = Inside()
        for grant in self._grants.get(pod.metadata.uid, ()):
            if grant.container == container:
                await self._prepare(grant)
                for promised in grant.promised:
                    edits = self._edits[pod.metadata.uid][promised]
                    inside.environment |= edits.environment
                    inside.devices += [node.path for node in edits.device_nodes]
        if (record := self._hand_over.store.of(pod.metadata.uid)) is not None:
            inside.parts = record.holding.placement.containers.get(container, ())
        return inside

    async def _prepare(self, grant: Grant) -> None:
        try:
            await self._hand_over.prepare(grant.resource, grant.ids)
        except AliquotError as error:
            raise Refused(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    def see_pods(self) -> None:
        self._pods.notify()

    def release(self, pod_uid: str) -> None:
        self._admitted.pop(pod_uid, None)
        self._grants.pop(pod_uid, None)
        self._edits.pop(pod_uid, None)
        self._hand_over.store.forget([pod_uid])

    # -- what the hand-over asks kubelet, and tells the runtime

    async def find(self, resource: str, ids: frozenset[str], before: Set[str] = frozenset()) -> PodGrants:
        for uid, grants in self._grants.items():
            mine = tuple(grant for grant in grants if grant.resource == resource and grant.ids == ids)
            if mine:
                carried = frozenset(grant.container for grant in grants if grant.resource in before)
                return PodGrants(uid, None, mine, carried)
        raise Refused("the pod has ended")

    async def keeps(self, gone: Mapping[str, str]) -> Set[str]:
        return gone.keys() & self._admitted.keys()

    async def running(self, ended: Set[str]) -> Set[str]:
        return ended & self._admitted.keys()

    def write(self, promised: str, owner: HandOverRecord, edits: ContainerEdits) -> bool:
        self._edits.setdefault(owner.uid, {})[promised] = edits
        return False  # there is no runtime to wait for


@cache
def _counts(dialect: Dialect, cards: NodeGpus) -> Sequence[tuple[str, int]]:
    """The number of ids of each resource that the agent would offer. Equal machines share the cached result."""
    return [(resource.name, len(listed.ids) - len(listed.unhealthy)) for resource, listed in offered(dialect, cards)]


def _without_names(cards: NodeGpus) -> NodeGpus:
    """The cards with placeholder UUIDs of the same length: kubelet limits a list's size. Equal machines share it."""
    names = {gpu.uuid: f"{gpu.index:0{len(gpu.uuid)}}" for gpu in cards.gpus}
    gpus = (
        replace(gpu, uuid=names[gpu.uuid], parent=names.get(gpu.parent, gpu.parent), links=()) for gpu in cards.gpus
    )
    return NodeGpus("", tuple(gpus), cards.unit_mib)


def _grant(uid: str, container: str, resource: str) -> Grant:
    ids = frozenset((f"{uid}/{container}/{resource}",))
    return Grant(uid, container, resource, ids, (cdi.promise(ids),))
