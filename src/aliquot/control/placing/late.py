"""Late placement: for pods that another scheduler bound without a placement.

Endpoints without a bind verb cannot write a placement. The Lease holder sees `nodeName`, fits the pod on that node, and
patches the placement onto it. The agent waits for that. A filter may have reserved the part before.

Every original writes its own record before it binds, so no original handled a bound pod without a record.
"""

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import NoReturn

import structlog

from aliquot import faults, metrics
from aliquot.clock import Clock
from aliquot.config.sections.placement import LateSection
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.leadership.rights import PATCH_PODS
from aliquot.control.placing.pod_events import PodEvents
from aliquot.control.placing.pod_metadata import PodMetadata
from aliquot.control.placing.transaction import PlacementTransactions
from aliquot.control.state.assumed_pods import packing_order
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed, PodSeen, Reassigned
from aliquot.control.state.search_allowances import Allowance
from aliquot.dialects import Demand, Dialect
from aliquot.dialects.reading import SERVES
from aliquot.engine import needs_text
from aliquot.errors import AliquotError, BadDemand, BadRecord, NoRoom, NotLeading, Refused
from aliquot.kube import PODS, ApiError, Client, KubeError, NotSent
from aliquot.ledger import State
from aliquot.model import Node, Placement, Pod, Request, as_shown
from aliquot.model.kubernetes import NOT_BEGUN
from aliquot.model.records import INVENTORY, PLACEMENT

_log = structlog.get_logger()
_EACH_SECONDS = 1.0
_AT_ONCE = 8
_STRETCH = 256
"""Pods checked for changes before the loop yields."""
_LOST_AT_ONCE, _LOST_SHARE = 2.0, 0.2
"""Seconds that failed attempts may take per namespace at once, and seconds per second after that."""
_NO_INVENTORY = "its node has no inventory from our agent: another agent hands out its cards"


class LatePlacer:
    """`node_called` finds a node in the informer cache. A pod fails only after `late.seconds` without room: the event
    that frees room may still be on its way. Meanwhile the pod is retried only after a relevant change."""

    def __init__(
        self,
        client: Client,
        cluster: ClusterState,
        transactions: PlacementTransactions,
        node_called: Callable[[str], Node | None],
        leadership: Leadership,
        pod_events: PodEvents,
        clock: Clock,
        settings: LateSection,
        *,
        is_in_sync: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_in_sync = is_in_sync
        self._client = client
        self._cluster = cluster
        self._node_called = node_called
        self._leadership = leadership
        self._pod_events = pod_events
        self._transactions = transactions
        self._clock = clock
        self._settings = settings
        self._crowded_out: dict[str, float] = {}
        """Since when there is no room for a pod."""
        self._left_alone: set[str] = set()
        self._last_failure: dict[str, tuple[object, ...]] = {}
        """The circumstances of the last failed attempt for a pod."""
        self._allowances: dict[str, Allowance] = {}
        """Time left for failed attempts, by namespace."""
        self._doubts: dict[str, int] = {}
        """The node version at the last look at a pod that may have any card there."""

    def reconfigure(self, settings: LateSection) -> None:
        self._settings = settings

    async def run(self) -> NoReturn:
        while True:
            await self.look()
            await self._clock.sleep(_EACH_SECONDS)

    async def look(self) -> None:
        """Place every pod that waits for it. One pass."""
        self._look_at_doubts()
        self._forget_others(self._cluster.unplaced.values())
        if self._may_act():
            await self._place_all(await self._queue())

    async def _place_all(self, queue: Iterable[Pod]) -> None:
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def place(pod: Pod) -> None:
            try:
                await self._look_at(pod)
            finally:
                at_once.release()

        async with asyncio.TaskGroup() as placing:
            for pod in queue:
                await at_once.acquire()
                placing.create_task(place(pod))
                await asyncio.sleep(0)  # judge a single pod at a time, and answer calls in between

    def _look_at_doubts(self) -> None:
        """Retry pods charged on every card of their node because none was free, once the node has changed."""
        ledger, before, self._doubts = self._cluster.ledger, self._doubts, {}
        for uid, pod in list(self._cluster.unplaced.items()):
            held = ledger.entry(uid, pod.spec.node_name)
            if held is not None and not held.placement.containers:
                if before.get(uid) != ledger.version(held.node):
                    self._cluster.apply(PodSeen(pod))
                self._doubts[uid] = ledger.version(held.node)

    async def _queue(self) -> list[Pod]:
        """The bound pods without a placement that are worth an attempt, in the order that endpoints expect; ignored
        pods come last. Reading demands takes time, so this yields in between."""
        queue: list[tuple[tuple[float, str], Pod]] = []
        for number, pod in enumerate(list(self._cluster.unplaced.values())):
            is_worth_it = self._is_worth_a_look(pod)
            if is_worth_it:
                is_ours = pod.metadata.uid not in self._left_alone
                queue.append((packing_order(self._cluster, pod) if is_ours else (inf, ""), pod))
            if is_worth_it or number % _STRETCH == 0:
                await asyncio.sleep(0)
        return [pod for _, pod in sorted(queue, key=lambda placed: placed[0])]

    def _is_worth_a_look(self, pod: Pod) -> bool:
        """Whether something changed since the last failed attempt, or the pod is due to fail, and its namespace has
        time left."""
        uid, now = pod.metadata.uid, self._clock.monotonic()
        allowance = self._allowances.get(pod.metadata.namespace)
        if allowance is not None and allowance.left(now) <= 0:
            return False
        is_due = now - self._crowded_out.get(uid, inf) >= self._settings.seconds
        return is_due or self._last_failure.get(uid) != self._circumstances(pod)

    def _circumstances(self, pod: Pod) -> tuple[object, ...]:
        """Everything that decides whether a pod can be placed."""
        meta, name, ledger = pod.metadata, pod.spec.node_name, self._cluster.ledger
        entries = self._cluster.quotas.entries
        quota = (entries[meta.namespace], ledger.changes) if meta.namespace in entries else None
        may_not_search = self._cluster.searches.is_waiting(meta.uid)
        return pod, self._node_called(name), ledger.version(name), quota, may_not_search

    def _may_act(self) -> bool:
        """Whether the cluster state is in sync and we may write placements."""
        return self._leadership.may_commit and PATCH_PODS not in self._leadership.lacking and self._is_in_sync()

    # -- for endpoints without a bind verb

    def why_never(self, node: str, dialect: Dialect) -> str:
        """Why nobody would write the cards of a pod that another scheduler binds to a node; "" if somebody would, or
        nobody has to."""
        known = self._node_called(node)
        if known is None or dialect.agent_chooses or not dialect.names_cards or not self._cluster.cards(node).gpus:
            return ""
        return "" if INVENTORY in known.metadata.annotations else _NO_INVENTORY

    # -- a single pod

    async def _look_at(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if (
            self._cluster.unplaced.get(uid) is not pod
            or self._transactions.is_busy(uid)
            or not self._is_worth_a_look(pod)
        ):
            return  # the pod changed meanwhile, another transaction binds it, or its namespace has no time left
        began = self._clock.monotonic()
        try:
            demand = self._demand(pod)
            if demand is not None:
                await self._place(pod, demand)
                return
        except BadDemand as error:
            self._leave_alone(pod, str(error))
        except NotLeading:
            return
        except NoRoom:
            await self._has_no_room(pod, began)
            return
        except (KubeError, Refused) as error:
            _log.warning("cannot place a bound pod yet", pod=pod.key, node=pod.spec.node_name, why=str(error))
            return
        self._last_failure[pod.metadata.uid] = self._circumstances(pod)

    def _demand(self, pod: Pod) -> Demand | None:
        """What to place late; None for a pod that already got its cards, or is not ours. Only a pod that has not begun
        may fail without room. Raises BadDemand."""
        node, demand = self._node_called(pod.spec.node_name), self._cluster.demand_of(pod)
        has_begun = pod.started or pod.status.phase not in NOT_BEGUN
        is_over = has_begun or pod.metadata.deletion_timestamp is not None
        if node is None or demand is None or is_over or PLACEMENT in pod.metadata.annotations:
            return None
        why = self._why_not_ours(pod, node, demand.dialect)
        if why:
            self._leave_alone(pod, why)
        return None if why else demand

    def _why_not_ours(self, pod: Pod, node: Node, dialect: Dialect) -> str:
        cards, label = self._cluster.cards(node.key), node.metadata.labels.get(f"{SERVES}{dialect.name}")
        if INVENTORY not in node.metadata.annotations:
            return _NO_INVENTORY
        if not cards.serves(dialect.name) or not (dialect.names_cards or label == "true"):
            return f"our agent does not serve {dialect.name} on its node"
        held = self._cluster.ledger.entry(pod.metadata.uid, node.key)
        if held is not None and held.state is not State.BOUND:
            return ""  # a filter reserved it: an original's annotations are older
        try:
            written = dialect.read_back(pod, cards)
        except BadRecord:
            return ""  # our agent would refuse it for good
        return "" if written is None else "an original has placed it"

    def _leave_alone(self, pod: Pod, why: str) -> None:
        if pod.metadata.uid not in self._left_alone:
            self._left_alone.add(pod.metadata.uid)
            _log.warning("not placing a bound pod", pod=pod.key, node=pod.spec.node_name, why=why)

    async def _place(self, pod: Pod, demand: Demand) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        try:
            async with self._transactions.lock(uid):
                placed = await self._transactions.place(
                    pod, node, demand, lambda: self._claim(pod, demand), _Patch(self._client)
                )
        except BaseException as error:
            if (outcome := _outcome(error)) is not None:
                metrics.LATE.labels(outcome).inc()
            raise
        self._crowded_out.pop(uid, None)
        metrics.LATE.labels("placed").inc()
        cards = sorted({part.uuid for part in placed.placement.slices()})
        _log.info("placed late", pod=pod.key, node=node, cards=cards)
        await self._pod_events.is_placed_late(pod, placed.placement)

    def _claim(self, pod: Pod, demand: Demand) -> Placement:
        """Claim the reserved part, the part of an earlier patch, or a new part. Raises NoRoom."""
        uid, node, request = pod.metadata.uid, pod.spec.node_name, demand.request
        reserved = self._cluster.reserved_for(demand, node)
        held = self._cluster.ledger.entry(uid, node)
        if held is None or reserved is not None:
            return self._claimed(request, reserved or self._fit(demand, node))
        is_claimed = held.state is State.CLAIMED or self._transactions.is_unknown(uid, node)
        if held.placement.containers and is_claimed:
            sent = as_shown(held.placement, request, self._cluster.cards(node))
            return self._claimed(request, sent)  # again, because the outcome of the patch is unknown
        if uid in self._cluster.adoption.foretold and self._cluster.suits(held, demand):
            return self._claimed(request, held.placement)  # its node may be handing it over
        with self._cluster.trial(without=uid):  # these cards are only assumed until somebody names them
            placement = self._fit(demand, node)
        self._cluster.apply(Reassigned(request, placement))
        return placement

    def _claimed(self, request: Request, placement: Placement) -> Placement:
        self._cluster.apply(Claimed(request, placement))
        return placement

    def _fit(self, demand: Demand, node: str) -> Placement:
        """The part that a pod gets on its node. Raises NoRoom after a look at this node alone: many pods may wait for a
        single node."""
        if (reason := self._cluster.refusal(demand, node)) is not None:
            raise NoRoom(reason.value)
        return self._cluster.fit(demand, node)

    async def _has_no_room(self, pod: Pod, began: float) -> None:
        uid, now = pod.metadata.uid, self._clock.monotonic()
        is_due = now - self._crowded_out.setdefault(uid, now) >= self._settings.seconds
        why = self._shortage(pod) if is_due else ""
        self._last_failure[uid] = self._circumstances(pod)
        self._spend(pod.metadata.namespace, began)
        if why:
            metrics.LATE.labels("no_room").inc()
            _log.warning(
                "failing a bound pod, because its node has no room", pod=pod.key, node=pod.spec.node_name, why=why
            )
            await self._pod_events.has_no_room(pod, why)

    def _shortage(self, pod: Pod) -> str:
        """What a pod asked for and what its node lacks; "" if it asks for nothing."""
        demand = self._cluster.demand_of(pod)
        if demand is None:
            return ""
        lines = self._cluster.explain_node(demand, pod.spec.node_name).text().splitlines()
        return f"the pod needs {needs_text(demand.request)}: {'; '.join(line.strip() for line in lines)}"

    def _spend(self, namespace: str, began: float) -> None:
        now = self._clock.monotonic()
        allowance = self._allowances.setdefault(namespace, Allowance(_LOST_AT_ONCE, _LOST_SHARE, began))
        allowance.spend(now - began, now)

    def _forget_others(self, waiting: Iterable[Pod]) -> None:
        uids, namespaces = set[str](), set[str]()
        for pod in waiting:
            uids.add(pod.metadata.uid)
            namespaces.add(pod.metadata.namespace)
        self._left_alone &= uids
        self._crowded_out = {uid: since for uid, since in self._crowded_out.items() if uid in uids}
        self._last_failure = {uid: seen for uid, seen in self._last_failure.items() if uid in uids}
        self._allowances = {name: allowance for name, allowance in self._allowances.items() if name in namespaces}


class _Patch:
    after_claim: faults.Point = "after-late-claim"
    after_write: faults.Point = "after-late-patch"

    def __init__(self, client: Client) -> None:
        self._client = client

    async def send(self, pod: Pod, _node: str, metadata: PodMetadata) -> Pod | None:
        own = pod.metadata
        patch = {"metadata": metadata.fields()}
        return await self._client.patch(
            PODS, own.name, patch, namespace=own.namespace, uid=own.uid, version=metadata.version
        )

    def is_made(self, pod: Pod, _node: str) -> bool:
        return PLACEMENT in pod.metadata.annotations


def _outcome(error: BaseException) -> str | None:
    """Outcome of a write that did not place its pod; None if nothing was sent."""
    match error:
        case ApiError() | NotSent():
            return "refused"
        case Refused():
            return "refused" if isinstance(error.__cause__, ApiError) else None
        case AliquotError():
            return None if not isinstance(error, KubeError) else "unknown"
    return "unknown"
