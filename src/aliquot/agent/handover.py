"""The hand-over at PreStart: exactly the placed cards, or nothing and a reason."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

import structlog

from aliquot import faults
from aliquot.agent import cdi
from aliquot.agent.checkpoint import Grant
from aliquot.agent.handed import Handed
from aliquot.agent.holders import Holder
from aliquot.agent.memory import Memory, WasPromised
from aliquot.agent.pods import Pods
from aliquot.clock import Clock
from aliquot.dialects import Demand, Dialect, Dialects, Holding, demand_of, placement_of
from aliquot.errors import NoRoom, NotPlaced, Refused
from aliquot.kube import PODS, Client
from aliquot.ledger import Ledger, Owner
from aliquot.model import NodeGpus, Placement, Pod, charges

_log = structlog.get_logger()

PATIENCE = 15.0
"""How long a PreStart waits for a placement."""
LIMIT = 27.0
"""How long it may take in all; kubelet gives it 30 s, and then shows its own words instead of ours."""
SETTLING = 0.1
"""How long the runtime gets to hear of a new spec."""
ALSO_ASKED = "ALIQUOT_ALSO_ASKED"
"""What a resource brings into a container whose devices come with another one."""


class FindsHolder(Protocol):
    """Who knows what kubelet gave to whom: `holders.Holders`."""

    async def find(self, resource: str, ids: frozenset[str], before: Set[str] = frozenset()) -> Holder: ...

    async def keeps(self, gone: Mapping[str, str]) -> Set[str]: ...


class WritesSpecs(Protocol):
    """Who tells the container runtime: `cdi.Folder`."""

    def write(self, promised: str, owner: Handed, edits: cdi.Edits) -> bool: ...


@dataclass(frozen=True)
class _Offer:
    """A resource that kubelet may give to containers."""

    resource: str
    dialect: Dialect
    before: frozenset[str]
    """Resources of the dialect that carry a container's devices in its place."""


def _offers(dialect: Dialect) -> Iterator[_Offer]:
    names = [resource.name for resource in dialect.resources]
    for place, name in enumerate(names):
        yield _Offer(name, dialect, frozenset(names[:place]))


class HandOver:
    """Answers PreStart for every resource of the dialects that this node serves: they share cards and a ledger."""

    def __init__(
        self,
        served: Sequence[Dialect],
        dialects: Dialects,
        holders: FindsHolder,
        pods: Pods,
        cards: NodeGpus,
        folder: WritesSpecs,
        client: Client,
        clock: Clock,
    ) -> None:
        self._offers = {offer.resource: offer for dialect in served for offer in _offers(dialect)}
        self._dialects = dialects
        self._holders = holders
        self._pods = pods
        self._cards = cards
        self._folder = folder
        self._client = client
        self._clock = clock
        self.memory = Memory(dialects, cards, pods, holders)
        self._marked: set[str] = set()

    async def prepare(self, resource: str, ids: frozenset[str]) -> None:
        """Let a container start with its cards. Raises AliquotError with a text for the pod's event."""
        try:
            async with asyncio.timeout(LIMIT):
                await self._prepare(self._offers[resource], ids)
        except TimeoutError:
            raise Refused(f"kubelet or the API server did not answer within {LIMIT:g} s") from None

    async def _prepare(self, offer: _Offer, ids: frozenset[str]) -> None:
        holder = await self._holders.find(offer.resource, ids, offer.before)
        pod, demand, handed = await self._wait_for_placement(holder, offer)
        if self._write(holder, pod, demand, handed):
            await self._clock.sleep(SETTLING)
        faults.reach("in-prestart")
        await self._mark(pod, offer.dialect)
        _log.info(
            "handed over", pod=pod.key, resource=offer.resource, containers=[grant.container for grant in holder.grants]
        )

    async def tidy(self, folder: cdi.Folder, kubelet: WasPromised) -> None:
        """Remove what pods that kubelet has dropped have left."""
        await self.memory.tidy(folder, kubelet)
        self._marked = {uid for uid in self._marked if uid in self.memory}

    # -- is it placed, and is there room?

    async def _wait_for_placement(self, holder: Holder, offer: _Offer) -> tuple[Pod, Demand, Handed]:
        """The mirror can be a moment behind kubelet, and some endpoints place late: wait before saying no."""
        deadline = self._clock.monotonic() + PATIENCE
        while True:
            await self.memory.forget_dropped()
            try:
                return self._placed(holder, offer)
            except (NotPlaced, NoRoom):
                left = deadline - self._clock.monotonic()
                if not await self._pods.change(left, self._clock):
                    raise

    def _placed(self, holder: Holder, offer: _Offer) -> tuple[Pod, Demand, Handed]:
        pod = self._pods.by_uid(holder.pod_uid)
        if pod is None:
            raise NotPlaced(f"the API server shows no pod {holder.pod or holder.pod_uid} on this node")
        if pod.metadata.deletion_timestamp:
            raise Refused(f"pod {pod.key} is being deleted")
        if holder.pod is not None and holder.pod != pod.key:
            raise Refused(f"kubelet's checkpoint names pod {pod.key} and PodResources {holder.pod}")
        demand = demand_of(pod, self._dialects)
        if demand is None:
            raise Refused(f"pod {pod.key} asks for no GPU, but kubelet gave it {offer.resource}")
        if demand.dialect.name != offer.dialect.name:
            raise Refused(
                f"pod {pod.key} speaks {demand.dialect.name}, but {offer.resource} is served here for "
                f"{offer.dialect.name} (--dialect)"
            )
        handed = self._readable(pod, demand)
        for grant in holder.grants:
            if grant.container not in handed.holding.placement.containers:
                raise Refused(f"pod {pod.key}: container {grant.container} has no part in the placement")
        self._refuse_sick_cards(handed.holding.placement)
        self._refuse_overcommit(handed)
        self.memory.put(handed)
        return pod, demand, handed

    def _readable(self, pod: Pod, demand: Demand) -> Handed:
        """What it gets; once the pod has its cards, a record that is rewritten does not give it others."""
        if handed := self.memory.of(pod.metadata.uid):
            if handed.holding.doubt:
                raise Refused(f"pod {pod.key}: {handed.holding.doubt}")
            return handed
        try:
            placement = placement_of(pod, demand, self._cards)
        except NotPlaced as error:
            raise NotPlaced(
                f"{error}, so it gets no card: is Aliquot configured as an extender of the scheduler that bound it?"
            ) from error
        return Handed(pod.metadata.uid, pod.key, Holding(placement, charges(placement, demand.request)))

    def _refuse_sick_cards(self, placement: Placement) -> None:
        for part in placement.slices():
            gpu = self._cards.by_uuid.get(part.uuid)
            if gpu is None:
                raise Refused(f"card {part.uuid}, which the pod was given, is no longer on this node")
            if not gpu.healthy:
                raise Refused(f"the placement names card {part.uuid}, which is not healthy")

    def _refuse_overcommit(self, handed: Handed) -> None:
        """The last line of defence: what this node has already handed over, and this pod, must fit its cards."""
        ledger = Ledger()
        ledger.set_cards(self._cards)
        for other in self.memory.others(handed.uid):
            ledger.adopt(Owner(other.uid, other.pod), other.holding.placement, other.holding.charges)
        try:
            ledger.claim(Owner(handed.uid, handed.pod), handed.holding.placement, handed.holding.charges)
        except NoRoom as error:
            raise NoRoom(f"the placement of pod {handed.pod} would over-commit this node: {error}") from error

    # -- hand over

    def _write(self, holder: Holder, pod: Pod, demand: Demand, handed: Handed) -> bool:
        """Write every promised name of the grants; returns whether the runtime has something new to read."""
        placement = handed.holding.placement
        written = [
            self._folder.write(promised, handed, self._edits(grant, holder, pod, demand, placement))
            for grant in holder.grants
            for promised in grant.promised
            if cdi.is_ours(promised)
        ]
        if not written:
            raise Refused(
                f"pod {pod.key}: kubelet remembers no promise of ours; was another device plug-in here before?"
            )
        return any(written)

    def _edits(self, grant: Grant, holder: Holder, pod: Pod, demand: Demand, placement: Placement) -> cdi.Edits:
        if grant.container in holder.carried:
            return cdi.Edits({ALSO_ASKED: grant.resource}, ())  # a spec must not be empty
        minors = tuple(sorted({part.minor for part in placement.containers[grant.container]}))
        environment = demand.dialect.environment(pod, demand.request, grant.container, placement, self._cards)
        return cdi.Edits(environment, minors)

    async def _mark(self, pod: Pod, dialect: Dialect) -> None:
        """Say on the pod that its cards were handed over: once per start, in one patch that only this pod can take."""
        uid = pod.metadata.uid
        if uid in self._marked or dialect.is_marked(pod):
            return
        if marks := dialect.hand_over_marks(pod, self._clock.wall_ns()):
            body = {"metadata": {"uid": uid, "annotations": marks}}
            await self._client.patch(PODS, pod.metadata.name, body, namespace=pod.metadata.namespace)
        self._marked.add(uid)
