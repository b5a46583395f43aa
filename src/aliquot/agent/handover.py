"""The hand-over at PreStart: exactly the placed cards, or nothing and a reason."""

import asyncio
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

import structlog

from aliquot import faults
from aliquot.agent import cdi
from aliquot.agent.checkpoint import Grant
from aliquot.agent.holders import Holder
from aliquot.clock import Clock, came
from aliquot.dialects import Demand, Dialect, Dialects, Holding, demand_of, holding_of, placement_of
from aliquot.errors import AliquotError, NoRoom, NotPlaced, Refused
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


class Pods:
    """The pods of this node as our mirror has them, and a way to wait for the next change."""

    def __init__(self, all_pods: Callable[[], list[Pod]]) -> None:
        self._all = all_pods
        self._changed = asyncio.Event()

    def all(self) -> list[Pod]:
        return self._all()

    def by_uid(self, uid: str) -> Pod | None:
        return next((pod for pod in self._all() if pod.metadata.uid == uid), None)

    def tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self, seconds: float, clock: Clock) -> bool:
        """Wait for the next change, at most so long; returns whether there was one."""
        return await came(self._changed, seconds, clock)


class FindsHolder(Protocol):
    """Who knows what kubelet gave to whom: `holders.Holders`."""

    async def find(self, resource: str, ids: frozenset[str], before: Set[str] = frozenset()) -> Holder: ...


class WritesSpecs(Protocol):
    """Who tells the container runtime: `cdi.Folder`."""

    def write(self, promised: str, pod_uid: str, edits: cdi.Edits) -> bool: ...


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
    """Answers PreStart for every resource of the dialects that this node serves: they share cards and books."""

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
        self._served: dict[str, Holding] = {}
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
        pod, demand, placement = await self._wait_for_placement(holder, offer)
        if self._write(holder, pod, demand, placement):
            await self._clock.sleep(SETTLING)
        faults.reach("in-prestart")
        await self._mark(pod, offer.dialect)
        _log.info(
            "handed over", pod=pod.key, resource=offer.resource, containers=[grant.container for grant in holder.grants]
        )

    def forget_all_but(self, uids: set[str]) -> None:
        self._served = {uid: holding for uid, holding in self._served.items() if uid in uids}
        self._marked &= uids

    # -- is it placed, and is there room?

    async def _wait_for_placement(self, holder: Holder, offer: _Offer) -> tuple[Pod, Demand, Placement]:
        """The mirror can be a moment behind kubelet, and some doors place late: wait before saying no."""
        deadline = self._clock.monotonic() + PATIENCE
        while True:
            try:
                return self._placed(holder, offer)
            except (NotPlaced, NoRoom):
                left = deadline - self._clock.monotonic()
                if not await self._pods.change(left, self._clock):
                    raise

    def _placed(self, holder: Holder, offer: _Offer) -> tuple[Pod, Demand, Placement]:
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
        placement = self._readable(pod, demand)
        for grant in holder.grants:
            if grant.container not in placement.containers:
                raise Refused(f"pod {pod.key}: container {grant.container} has no part in the placement")
        self._refuse_sick_cards(placement)
        holding = Holding(placement, charges(placement, demand.request))
        self._refuse_overcommit(pod, holding)
        self._served[pod.metadata.uid] = holding
        return pod, demand, placement

    def _readable(self, pod: Pod, demand: Demand) -> Placement:
        """Its placement; once the pod has its cards, a record that is rewritten does not give it others."""
        if served := self._served.get(pod.metadata.uid):
            return served.placement
        try:
            return placement_of(pod, demand, self._cards)
        except NotPlaced as error:
            raise NotPlaced(
                f"{error}, so it gets no card: is Aliquot configured as an extender of the scheduler that bound it?"
            ) from error

    def _refuse_sick_cards(self, placement: Placement) -> None:
        for part in placement.slices():
            if not self._cards.by_uuid[part.uuid].healthy:
                raise Refused(f"the placement names card {part.uuid}, which is not healthy")

    def _refuse_overcommit(self, pod: Pod, holding: Holding) -> None:
        """The last line of defence: what this node has already handed over, and this pod, must fit its cards."""
        ledger = Ledger()
        ledger.set_cards(self._cards)
        for other in self._pods.all():
            held = None if other.metadata.uid == pod.metadata.uid else self._handed_over(other)
            if held is not None:
                ledger.adopt(Owner(other.metadata.uid, other.key), held.placement, held.charges)
        try:
            ledger.claim(Owner(pod.metadata.uid, pod.key), holding.placement, holding.charges)
        except NoRoom as error:
            raise NoRoom(f"the placement of pod {pod.key} would over-commit this node: {error}") from error

    def _handed_over(self, pod: Pod) -> Holding | None:
        """What a pod has got from this node: as we gave it, or, from before a restart, as its marks and record say."""
        if pod.ended:
            return None
        if pod.metadata.uid in self._served:
            return self._served[pod.metadata.uid]
        try:
            if not any(dialect.handed_over(pod) for dialect in self._dialects.spoken_by(pod)):
                return None
            return holding_of(pod, self._cards, self._dialects)
        except AliquotError as error:
            _log.error("a pod of this node cannot be counted", pod=pod.key, why=str(error))
            return None

    # -- hand over

    def _write(self, holder: Holder, pod: Pod, demand: Demand, placement: Placement) -> bool:
        """Write every promised name of the grants; returns whether the runtime has something new to read."""
        written = [
            self._folder.write(promised, holder.pod_uid, self._edits(grant, holder, pod, demand, placement))
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
