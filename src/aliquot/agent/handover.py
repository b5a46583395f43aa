"""The hand-over at PreStart: exactly the placed cards, or nothing and a reason."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

from aliquot import faults
from aliquot.agent import cdi
from aliquot.agent.checkpoint import Grant
from aliquot.agent.container_edits import edits_beside, edits_of, resources_before
from aliquot.agent.devices import ContainerEdits, DeviceSource
from aliquot.agent.handover_record import HandOverRecord
from aliquot.agent.handover_store import HandOverStore, KnowsGrants
from aliquot.agent.kubelet_records import PodGrants
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_pods import NodePods
from aliquot.agent.off_loop import off_loop
from aliquot.agent.own_variables import OwnVariables
from aliquot.clock import Clock
from aliquot.dialects import Demand, Dialect, Dialects, Holding, demand_of, placement_of
from aliquot.errors import NoRoom, NotPlaced, Refused
from aliquot.kube import PODS, Client
from aliquot.ledger import Ledger, Owner
from aliquot.model import NodeGpus, Placement, Pod, Slice, charges

_log = structlog.get_logger()

PATIENCE = 15.0
"""How many seconds a PreStart waits for a placement."""
LIMIT = 27.0
"""How many seconds a PreStart may take. After 30 s kubelet gives up and shows its own message instead of ours."""
_LOOK_SECONDS = 2.0
"""How often it looks again though no pod has changed: the container runtime tells nobody when a container ends."""
SETTLING = 0.1
"""How many seconds the container runtime gets to notice a new spec."""


class FindsGrants(Protocol):
    """Knows what kubelet allocated to which pod: `kubelet_records.KubeletRecords`."""

    async def find(self, resource: str, ids: frozenset[str], before: Set[str] = frozenset()) -> PodGrants: ...

    async def keeps(self, gone: Mapping[str, str]) -> Set[str]: ...

    async def running(self, ended: Set[str]) -> Set[str]: ...


class WritesSpecs(Protocol):
    """Writes what the container runtime reads: `cdi.SpecFolder`."""

    def write(self, promised: str, owner: HandOverRecord, edits: ContainerEdits) -> bool: ...


@dataclass(frozen=True)
class _Offer:
    """A resource that kubelet may allocate to containers."""

    resource: str
    dialect: Dialect
    before: frozenset[str]
    """Resources of the dialect that come first (`resources_before`)."""


class HandOver:
    """Answers PreStart for every resource of the served dialects, which share the node's cards and one ledger.

    `folder` is None if the container runtime has no CDI.
    """

    def __init__(
        self,
        served: Sequence[Dialect],
        dialects: Dialects,
        holders: FindsGrants,
        pods: NodePods,
        cards: NodeCards,
        devices: DeviceSource,
        folder: WritesSpecs | None,
        client: Client,
        clock: Clock,
    ) -> None:
        self._offers = {
            name: _Offer(name, dialect, before) for dialect in served for name, before in resources_before(dialect)
        }
        self._dialects = dialects
        self._holders = holders
        self._pods = pods
        self._cards = cards
        self._devices = devices
        self._folder = folder
        self._client = client
        self._clock = clock
        self.store = HandOverStore(dialects, cards, devices, pods, holders)
        self._marked: set[str] = set()
        self._own_variables = OwnVariables(client, devices, self.store)

    async def prepare(self, resource: str, ids: frozenset[str]) -> None:
        """Prepare a container's cards so that it can start. Raises AliquotError with the text for the pod's event."""
        try:
            async with asyncio.timeout(LIMIT):
                await self._prepare(self._offers[resource], ids)
        except TimeoutError:
            raise Refused(f"kubelet or the API server did not answer within {LIMIT:g} s") from None

    async def _prepare(self, offer: _Offer, ids: frozenset[str]) -> None:
        holder = await self._holders.find(offer.resource, ids, offer.before)
        pod, demand, record = await self._wait_for_placement(holder, offer)
        await self._own_variables.refuse(holder.grants, pod)
        if await off_loop(partial(self._write, holder, pod, demand, record, self._cards.current)):
            await self._clock.sleep(SETTLING)
        faults.reach("in-prestart")
        await self._mark(pod, demand.dialect)
        _log.info(
            "handed over the cards",
            pod=pod.key,
            resource=offer.resource,
            containers=[grant.container for grant in holder.grants],
        )

    async def tidy(self, folder: cdi.SpecFolder, kubelet: KnowsGrants) -> None:
        """Remove what is left of pods that kubelet has dropped."""
        await self.store.tidy(folder, kubelet)
        self._marked = {uid for uid in self._marked if uid in self.store}
        self._own_variables.forget()

    # -- is it placed, and is there room?

    async def _wait_for_placement(self, holder: PodGrants, offer: _Offer) -> tuple[Pod, Demand, HandOverRecord]:
        """Wait before refusing: the informer cache can lag behind kubelet, some endpoints place pods late, and
        containers of an earlier pod may still be ending."""
        deadline = self._clock.monotonic() + PATIENCE
        while True:
            await self.store.forget_dropped()
            try:
                return self._placed(holder, offer)
            except (NotPlaced, NoRoom):
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise
                await self._pods.wait_for_change(min(left, _LOOK_SECONDS), self._clock)

    def _placed(self, holder: PodGrants, offer: _Offer) -> tuple[Pod, Demand, HandOverRecord]:
        pod = self._pods.by_uid(holder.pod_uid)
        if pod is None:
            raise NotPlaced(f"the API server shows no pod {holder.pod or holder.pod_uid} on this node")
        if pod.metadata.deletion_timestamp:
            raise Refused(f"pod {pod.key} is being deleted")
        if pod.has_final_phase:
            raise Refused(f"pod {pod.key} is already {pod.status.phase}")
        if holder.pod is not None and holder.pod != pod.key:
            raise Refused(f"kubelet's checkpoint and its PodResources API disagree: {pod.key} or {holder.pod}")
        demand = demand_of(pod, self._dialects)
        if demand is None:
            raise Refused(f"pod {pod.key} requests no GPU, but kubelet allocated {offer.resource} to it")
        if not offer.dialect.serves(demand.dialect):
            raise Refused(
                f"pod {pod.key} uses dialect {demand.dialect.name}, but this node serves {offer.resource} for dialect "
                f"{offer.dialect.name} (--dialect)"
            )
        record = self._readable(pod, demand, holder)
        for grant in holder.grants:
            if grant.container not in record.holding.placement.containers:
                raise Refused(f"pod {pod.key}: its placement has no card for container {grant.container}")
        self._refuse_sick_cards(record.holding.placement)
        if record.uid not in self.store:  # other pods were already checked against what this pod holds
            self._refuse_overcommit(record)
            self.store.put(record)
        return pod, demand, record

    def _readable(self, pod: Pod, demand: Demand, holder: PodGrants) -> HandOverRecord:
        """What the pod gets. Once it has its cards, from us or from another plugin, a rewritten placement does not
        change them."""
        if record := self.store.of(pod.metadata.uid) or self.store.adopted(pod, holder.grants):
            if record.holding.doubt:
                raise Refused(f"pod {pod.key}: {record.holding.doubt}")
            return record
        try:
            placement = placement_of(pod, demand, self._cards.current)
        except NotPlaced as error:
            raise NotPlaced(f"{error}, so it gets no card: {self._why_not_placed(pod, demand, holder)}") from error
        return HandOverRecord(pod.metadata.uid, pod.key, Holding(placement, charges(placement, demand.request)))

    def _why_not_placed(self, pod: Pod, demand: Demand, holder: PodGrants) -> str:
        """A scheduler that counts whole cards or MIG instances by itself does not see those that pods of other dialects
        hold."""
        (grant, *_) = holder.grants
        ids = demand.dialect.device_ids(grant.resource, self._cards.current)
        whole = {uuid for _, uuid in ids}
        on_them = [other for other in self.store.others(pod.metadata.uid) if other.holding.charges.keys() & whole]
        free = whole.difference(*(other.holding.charges for other in on_them))
        if len(whole) == len(ids) and len(free) < len(grant.ids):
            named = ", ".join(sorted(other.pod for other in on_them))
            return (
                f"of {len(whole)} {grant.resource} on this node {len(free)} are free, and it waits for {named} to end"
            )
        return "is Aliquot configured as an extender of the scheduler that bound it?"

    def _refuse_sick_cards(self, placement: Placement) -> None:
        for part in placement.slices():
            gpu = self._cards.current.by_uuid.get(part.uuid)
            if gpu is None:
                raise Refused(f"card {part.uuid} of the placement is no longer on this node")
            if not gpu.healthy:
                raise Refused(f"card {part.uuid} of the placement is unhealthy")

    def _refuse_overcommit(self, record: HandOverRecord) -> None:
        """The last line of defence: this pod must fit next to everything that this node has handed over."""
        ledger = Ledger()
        ledger.set_cards(self._cards.current)
        for other in self.store.others(record.uid):
            ledger.adopt(Owner(other.uid, other.pod), other.holding.placement, other.holding.charges)
        try:
            ledger.claim(Owner(record.uid, record.pod), record.holding.placement, record.holding.charges)
        except NoRoom as error:
            raise NoRoom(f"the placement of pod {record.pod} would over-commit this node: {error}") from error

    # -- hand over

    def _write(self, holder: PodGrants, pod: Pod, demand: Demand, record: HandOverRecord, cards: NodeGpus) -> bool:
        """Write a CDI spec for every promised name, and check every answer that has carried the devices itself, ours or
        another plugin's: kubelet repeats it at every start. Returns whether the runtime has something new to read.
        Reads the driver's files and may block."""
        is_new: list[bool] = []
        for grant in holder.grants:
            if not grant.is_ours:
                self._check_given(grant, holder, pod, record.holding.placement, cards)
                continue
            parts, edits = self._due(grant, holder, pod, demand, record.holding.placement, cards)
            if grant.answer is not None:
                grant.answer.refuse_unless_due(f"container {grant.container} of pod {pod.key}", parts, edits)
            is_new += [self._spec(promised, record, edits) for promised in grant.promised if cdi.is_ours(promised)]
        return any(is_new)

    def _check_given(self, grant: Grant, holder: PodGrants, pod: Pod, placement: Placement, cards: NodeGpus) -> None:
        """Raises Refused if another device plugin gave the container other cards than it holds. Its answer for another
        resource may be empty."""
        held = dict.fromkeys(part.uuid for part in placement.containers[grant.container])
        self._devices.restore_links(grant.edits, [cards.by_uuid[uuid] for uuid in held])
        given = self.store.given_cards(grant)
        if given != held.keys() and (given or grant.container not in holder.carried):
            raise Refused(
                f"pod {pod.key}: another device plugin served container {grant.container} before, and gave it "
                f"{', '.join(sorted(given)) or 'no card'} instead of {', '.join(sorted(held))}; delete the pod, so "
                "that it is placed again"
            )

    def _due(
        self, grant: Grant, holder: PodGrants, pod: Pod, demand: Demand, placement: Placement, cards: NodeGpus
    ) -> tuple[tuple[Slice, ...], ContainerEdits]:
        """The parts and the edits that a container must get through this resource."""
        if grant.container in holder.carried:
            return (), edits_beside(grant.resource)
        with_cdi = grant.answer is None
        edits = edits_of(grant.container, pod, demand, placement, cards, self._devices, with_cdi=with_cdi)
        return placement.containers[grant.container], edits

    def _spec(self, promised: str, record: HandOverRecord, edits: ContainerEdits) -> bool:
        if self._folder is None:
            raise Refused(
                f"pod {record.pod} was promised a CDI device, but the agent now runs without CDI: delete the pod, and "
                "its controller creates a new one"
            )
        return self._folder.write(promised, record, edits)

    async def _mark(self, pod: Pod, dialect: Dialect) -> None:
        """Mark the pod as handed over, once per agent start, in one patch that applies to this pod's UID only."""
        uid = pod.metadata.uid
        if uid in self._marked or dialect.is_marked(pod):
            return
        if marks := dialect.hand_over_marks(pod, self._clock.wall_ns()):
            body = {"metadata": {"uid": uid, "annotations": marks}}
            await self._client.patch(PODS, pod.metadata.name, body, namespace=pod.metadata.namespace)
        self._marked.add(uid)
