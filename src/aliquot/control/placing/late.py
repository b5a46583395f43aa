"""Late placement: for pods that another scheduler bound without a placement.

Endpoints without a bind verb cannot write a placement. The Lease holder sees `nodeName`, fits the pod on that node, and
patches the placement onto it. The agent waits for that. A filter may have reserved the part before.

Every original writes its own record before it binds, so no original handled a bound pod without a record.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NoReturn

import structlog

from aliquot import metrics
from aliquot.clock import Clock
from aliquot.config.sections.placement import LateSection
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.leadership.rights import PATCH_PODS
from aliquot.control.placing.late_patch import LatePatches
from aliquot.control.placing.late_queue import LateQueue
from aliquot.control.placing.pod_events import PodEvents
from aliquot.control.placing.transaction import PlacementTransactions
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import PodSeen
from aliquot.dialects import Demand, Dialect
from aliquot.dialects.node_reading import served_by_label
from aliquot.engine import needs_text
from aliquot.errors import BadDemand, BadRecord, NoRoom, NotLeading, Refused
from aliquot.kube import Client, KubeError
from aliquot.ledger import State
from aliquot.model import Node, Pod
from aliquot.model.kubernetes import NOT_BEGUN
from aliquot.model.records import INVENTORY, PLACEMENT

_log = structlog.get_logger()
_EACH_SECONDS = 1.0
_AT_ONCE = 8
_OBSERVED = "its node is observed: another device plugin hands out its cards"
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
        self._cluster = cluster
        self._node_called = node_called
        self._leadership = leadership
        self._pod_events = pod_events
        self._transactions = transactions
        self._clock = clock
        self._patches = LatePatches(client, cluster, transactions)
        self._queue = LateQueue(cluster, node_called, clock, settings)
        self._doubts: dict[str, int] = {}
        """The node version at the last look at a pod that may have any card there."""

    def reconfigure(self, settings: LateSection) -> None:
        self._queue.reconfigure(settings)

    async def run(self) -> NoReturn:
        while True:
            await self.look()
            await self._clock.sleep(_EACH_SECONDS)

    async def look(self) -> None:
        """Place every pod that waits for it. One pass."""
        self._look_at_doubts()
        self._queue.forget_others()
        if self._may_act():
            await self._place_all(await self._queue.pods())

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

    def _may_act(self) -> bool:
        """Whether the cluster state is in sync and we may write placements."""
        return self._leadership.may_commit and PATCH_PODS not in self._leadership.lacking and self._is_in_sync()

    # -- for endpoints without a bind verb

    def why_never(self, node: str, dialect: Dialect) -> str:
        """Why nobody would write the cards of a pod that another scheduler binds to a node; "" if somebody would, or
        nobody has to."""
        if not dialect.names_cards or dialect.agent_chooses:
            return ""
        known = self._node_called(node)
        if known is None or not self._cluster.cards(node).gpus:
            return ""
        return "" if INVENTORY in known.metadata.annotations else _NO_INVENTORY

    # -- a single pod

    async def _look_at(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if (
            self._cluster.unplaced.get(uid) is not pod
            or self._transactions.is_busy(uid)
            or not self._queue.is_worth_a_look(pod)
        ):
            return  # the pod changed meanwhile, another transaction binds it, or its namespace has no time left
        began = self._clock.monotonic()
        try:
            demand = self._demand(pod)
            if demand is not None:
                placement = await self._patches.place(pod, demand)
                self._queue.is_placed(pod)
                await self._pod_events.is_placed_late(pod, placement)
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
        self._queue.has_failed(pod)

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
        cards = self._cluster.cards(node.key)
        if INVENTORY not in node.metadata.annotations:
            return _NO_INVENTORY
        if cards.observed:
            return _OBSERVED
        is_labelled = dialect.name in served_by_label(node, self._cluster.dialects)
        if not cards.serves(dialect.name) or not (dialect.names_cards or is_labelled):
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
        if self._queue.ignore(pod):
            _log.warning("not placing a bound pod", pod=pod.key, node=pod.spec.node_name, why=why)

    async def _has_no_room(self, pod: Pod, began: float) -> None:
        is_due = self._queue.has_no_room(pod, self._clock.monotonic())
        why = self._shortage(pod) if is_due else ""
        self._queue.has_failed(pod)
        self._queue.spend(pod.metadata.namespace, began)
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
