"""Late placement: for pods that another scheduler has bound before they had a placement.

Endpoints without a bind verb cannot write one. The holder of the Lease sees `nodeName`, fits the pod on that node, and
patches the placement onto it; the agent waits for that. On the way a filter may have kept the part for the pod.

Every original writes its own record before it binds, so a bound pod without any was handled by none of them.
"""

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import NoReturn

import structlog

from aliquot import faults, metrics
from aliquot.clock import Clock
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.leadership.rights import PATCH_PODS
from aliquot.control.leadership.term import is_stale
from aliquot.control.placing.claim_limits import require_allowance
from aliquot.control.placing.pod_events import Teller
from aliquot.control.placing.pod_metadata import keys_of
from aliquot.control.settings import ControlSettings
from aliquot.control.state.assumed_pods import packing_order
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.search_purses import Purse
from aliquot.dialects import Demand, Dialect
from aliquot.dialects.reading import SERVES
from aliquot.engine import NodeState, needs_text
from aliquot.errors import AlreadyHeld, BadDemand, BadRecord, NoRoom, NotLeading
from aliquot.kube import PODS, ApiError, Client, KubeError, NotFound, NotSent
from aliquot.ledger import State
from aliquot.model import Node, Placement, Pod, as_shown
from aliquot.model.records import INVENTORY, PLACEMENT

_log = structlog.get_logger()
_EACH_SECONDS = 1.0
_AT_ONCE = 8
_STRETCH = 256
"""Pods at which is seen, between two chances for others, whether anything has changed for them."""
_LOST_AT_ONCE, _LOST_SHARE = 2.0, 0.2
"""Seconds that looks in vain at the pods of a namespace may take, and seconds a second that they may from then on."""
_NO_INVENTORY = "its node has no inventory of ours: another agent hands cards over there"


class LatePlacer:
    """`node_called` finds a node as the mirror has it. A pod for which there is no room is failed only when there was
    none for `late_seconds`: what frees it may be on its way to us. Meanwhile it is looked at again only when something
    has changed for it."""

    def __init__(
        self,
        client: Client,
        cluster: ClusterState,
        node_called: Callable[[str], Node | None],
        leadership: Leadership,
        teller: Teller,
        clock: Clock,
        settings: ControlSettings,
        *,
        is_in_step: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_in_step = is_in_step
        self._client = client
        self._cluster = cluster
        self._node_called = node_called
        self._leadership = leadership
        self._teller = teller
        self._clock = clock
        self.settings = settings
        self._open: dict[tuple[str, str], float] = {}
        """Since when the fate of a pod's patch is unknown."""
        self._crowded_out: dict[str, float] = {}
        """Since when there is no room for a pod."""
        self._left_alone: set[str] = set()
        self._in_vain: dict[str, tuple[object, ...]] = {}
        """The circumstances of the last look at a pod that could not be placed."""
        self._purses: dict[str, Purse] = {}
        """By namespace, what is left for looks in vain."""
        self.on_kept: Callable[[], None] = lambda: None
        """Is told when a part is kept for a pod."""
        self._doubts: dict[str, int] = {}
        """The version of its node at the last look at a pod that may have any card there."""

    async def run(self) -> NoReturn:
        while True:
            await self.look()
            await self._clock.sleep(_EACH_SECONDS)

    async def look(self) -> None:
        """Place whoever waits for it, and look after what was left open. One pass."""
        for gone in self._cluster.expire(self._clock.monotonic()):
            if (pod := self._cluster.unplaced.get(gone.uid)) is not None:
                self._cluster.see_pod(pod)  # now its own keys count
        self._look_at_doubts()
        await self._settle()
        self._forget_others(self._cluster.unplaced.values())
        if self._may_act():
            await self._place_all(await self._line())

    async def _place_all(self, line: Iterable[Pod]) -> None:
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def place(pod: Pod) -> None:
            try:
                await self._look_at(pod)
            finally:
                at_once.release()

        async with asyncio.TaskGroup() as placing:
            for pod in line:
                await at_once.acquire()
                placing.create_task(place(pod))
                await asyncio.sleep(0)  # one pod is judged at a time, and calls are answered between two

    def _look_at_doubts(self) -> None:
        """A pod that may have any card of its node, since none was free for it, gets one when its node has changed."""
        ledger, before, self._doubts = self._cluster.ledger, self._doubts, {}
        for uid, pod in list(self._cluster.unplaced.items()):
            held = ledger.entry(uid, pod.spec.node_name)
            if held is not None and not held.placement.containers:
                if before.get(uid) != ledger.version(held.node):
                    self._cluster.see_pod(pod)
                self._doubts[uid] = ledger.version(held.node)

    async def _line(self) -> list[Pod]:
        """Who was bound without a placement and is worth a look, as endpoints expect them to be placed; those left
        alone at the end. To read what a pod asks for takes its time, so others get their chance between two."""
        line: list[tuple[tuple[float, str], Pod]] = []
        for number, pod in enumerate(list(self._cluster.unplaced.values())):
            is_worth_it = self._is_worth_a_look(pod)
            if is_worth_it:
                is_ours = pod.metadata.uid not in self._left_alone
                line.append((packing_order(self._cluster, pod) if is_ours else (inf, ""), pod))
            if is_worth_it or number % _STRETCH == 0:
                await asyncio.sleep(0)
        return [pod for _, pod in sorted(line, key=lambda placed: placed[0])]

    def _is_worth_a_look(self, pod: Pod) -> bool:
        """Whether something has changed since a look in vain, or the pod is to fail; and its namespace has not had too
        many of them."""
        uid, now = pod.metadata.uid, self._clock.monotonic()
        purse = self._purses.get(pod.metadata.namespace)
        if purse is not None and purse.left(now) <= 0:
            return False
        is_due = now - self._crowded_out.get(uid, inf) >= self.settings.late_seconds
        return is_due or self._in_vain.get(uid) != self._circumstances(pod)

    def _circumstances(self, pod: Pod) -> tuple[object, ...]:
        """All that decides whether a pod can be placed. What its node holds, not its version: whoever tries something
        out changes that one."""
        meta, name, ledger = pod.metadata, pod.spec.node_name, self._cluster.ledger
        entries = self._cluster.quotas.entries
        quota = (entries[meta.namespace], ledger.changes) if meta.namespace in entries else None
        may_not_search = self._cluster.searches.is_waiting(meta.uid)
        held, used = ledger.entry(meta.uid, name), ledger.used(name)
        return pod, self._node_called(name), self._cluster.cards(name), held, used, quota, may_not_search

    def _may_act(self) -> bool:
        """On cluster state that is in step, and with the right to write what they say."""
        return self._leadership.may_commit and PATCH_PODS not in self._leadership.lacking and self._is_in_step()

    def is_open(self, uid: str, node: str) -> bool:
        """Whether a placement of this pod is under way, or its fate unknown."""
        return (uid, node) in self._open

    # -- for endpoints without a bind verb

    def hold(self, pod: Pod, node: str, seconds: float, *, chosen: Placement | None = None) -> Placement:
        """Keep the part that a pod would get on a node, or the `chosen` one, for so long; asking again keeps it longer,
        and on another node moves it there. Raises Refused, NoRoom, BadDemand and NotLeading."""
        self._leadership.require()
        uid, ledger = pod.metadata.uid, self._cluster.ledger
        demand = self._cluster.demand_of(pod)
        if demand is None:
            return Placement(node, "", {})
        self.let_go(uid, but=node)
        held = ledger.entry(uid, node)
        if held is not None and held.until == inf:
            return held.placement
        require_allowance(ledger, uid, node, pod.metadata.namespace, self.settings.claims_per_namespace)
        placement = self._cluster.kept_for(demand, node) or chosen or self._cluster.fit(demand, node)
        kept = self._cluster.claim(demand.request, placement, until=self._clock.monotonic() + seconds)
        self.on_kept()
        return kept.placement

    def let_go(self, uid: str, *, but: str = "", only: str = "") -> bool:
        """Give back what is only kept for a pod, on every node, all but one, or one. Claims of a Binding stay. Returns
        whether there was any."""
        kept = [node for node in self.kept_on(uid, only) if node != but]
        for node in kept:
            self._cluster.drop_claim(uid, node)
        return bool(kept)

    def kept_on(self, uid: str, only: str = "") -> list[str]:
        """The nodes, or the one, on which something is only kept for a pod."""
        ledger = self._cluster.ledger
        nodes = ledger.nodes_of(uid)
        entries = [ledger.entry(uid, node) for node in (nodes & {only} if only else nodes)]
        return [kept.node for kept in entries if kept is not None and kept.until < inf]

    def why_never(self, node: str, dialect: Dialect) -> str:
        """Why nobody would write down the cards of a pod that another scheduler binds to a node; "" if somebody would,
        or nobody has to."""
        known = self._node_called(node)
        if known is None or dialect.agent_chooses or not dialect.names_cards or not self._cluster.cards(node).gpus:
            return ""
        return "" if INVENTORY in known.metadata.annotations else _NO_INVENTORY

    # -- one pod

    async def _look_at(self, pod: Pod) -> None:
        if self._cluster.unplaced.get(pod.metadata.uid) is not pod or not self._is_worth_a_look(pod):
            return  # it was seen anew, or others took their namespace's time, while others were placed
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
        except (KubeError, AlreadyHeld) as error:
            _log.warning("a bound pod could not be placed yet", pod=pod.key, node=pod.spec.node_name, why=str(error))
            return
        self._in_vain[pod.metadata.uid] = self._circumstances(pod)

    def _demand(self, pod: Pod) -> Demand | None:
        """What to place late; None for a pod that has got its cards in whatever way, or is none of ours. Raises
        BadDemand."""
        node, demand = self._node_called(pod.spec.node_name), self._cluster.demand_of(pod)
        has_begun = pod.started or pod.metadata.deletion_timestamp is not None
        if node is None or demand is None or has_begun or PLACEMENT in pod.metadata.annotations:
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
        if held is not None and held.state is State.CLAIMED:
            return ""  # a filter kept it: what an original's keys say is older
        try:
            written = dialect.read_back(pod, cards)
        except BadRecord as error:
            return f"an original has placed it, but where? {error}"
        return "" if written is None else "an original has placed it"

    def _leave_alone(self, pod: Pod, why: str) -> None:
        if pod.metadata.uid not in self._left_alone:
            self._left_alone.add(pod.metadata.uid)
            _log.warning("a bound pod without a placement is left alone", pod=pod.key, node=pod.spec.node_name, why=why)

    async def _place(self, pod: Pod, demand: Demand) -> None:
        uid, node, epoch = pod.metadata.uid, pod.spec.node_name, self._leadership.require()
        placement = self._take(pod, demand)
        keys = keys_of(pod, demand, placement, self._cluster, epoch=epoch, now_ns=self._clock.wall_ns())
        # where users may rewrite what a pod asks for, only the pod as we have read it is placed
        version = pod.metadata.resource_version if demand.dialect.demand_can_change(pod) else ""
        was_open = (uid, node) in self._open
        self._open.setdefault((uid, node), self._clock.monotonic())
        faults.reach("after-late-claim")
        try:
            placed = await self._client.patch(
                PODS, pod.metadata.name, {"metadata": keys}, namespace=pod.metadata.namespace, uid=uid, version=version
            )
        except (ApiError, NotSent) as error:
            if not was_open:  # otherwise an earlier patch may have been made
                del self._open[uid, node]
                self._cluster.drop_claim(uid, node)
            metrics.LATE.labels("refused").inc()
            if is_stale(error):
                self._leadership.depose()
            raise
        except BaseException:
            metrics.LATE.labels("unknown").inc()
            raise
        faults.reach("after-late-patch")
        self._open.pop((uid, node), None)
        self._crowded_out.pop(uid, None)
        if self._cluster.ledger.nodes_of(uid):  # it has not gone while we asked
            self._cluster.adoption.trust(uid)
            self._cluster.see_pod(placed)
        metrics.LATE.labels("placed").inc()
        _log.info("placed late", pod=pod.key, node=node, cards=sorted({part.uuid for part in placement.slices()}))
        await self._teller.is_placed_late(pod, placement)

    def _take(self, pod: Pod, demand: Demand) -> Placement:
        """The part that is about to be written on a pod, and that the ledger has for it from here on. Raises NoRoom."""
        uid, node, request = pod.metadata.uid, pod.spec.node_name, demand.request
        kept = self._cluster.kept_for(demand, node)
        held = self._cluster.ledger.entry(uid, node)
        if held is None or kept is not None:
            return self._cluster.claim(request, kept or self._fit(demand, node)).placement
        if held.placement.containers and (held.state is State.CLAIMED or self.is_open(uid, node)):
            sent = as_shown(held.placement, request, self._cluster.cards(node))
            return self._cluster.claim(request, sent).placement  # again, since there was no answer
        if uid in self._cluster.adoption.foretold and self._cluster.suits(held, demand):
            return self._cluster.claim(request, held.placement).placement  # its node may be handing it over
        with self._cluster.without(pod):  # cards that only count as its until somebody names them
            placement = self._fit(demand, node)
        return self._cluster.reassign(request, placement).placement

    def _fit(self, demand: Demand, node: str) -> Placement:
        """The part that a pod gets on its node. Raises NoRoom, after a look at this node alone: a judgement on all
        nodes takes far longer, and a crowd may wait for one node."""
        state = NodeState(self._cluster.cards(node), self._cluster.ledger.used(node))
        if (reason := self._cluster.refusal(state, demand)) is not None:
            raise NoRoom(reason.value)
        return self._cluster.fit(demand, node)

    async def _has_no_room(self, pod: Pod, began: float) -> None:
        uid, now = pod.metadata.uid, self._clock.monotonic()
        is_due = now - self._crowded_out.setdefault(uid, now) >= self.settings.late_seconds
        why = self._shortage(pod) if is_due else ""
        self._in_vain[uid] = self._circumstances(pod)
        self._spend(pod.metadata.namespace, began)
        if why:
            metrics.LATE.labels("no_room").inc()
            _log.warning("a bound pod has no room and fails", pod=pod.key, node=pod.spec.node_name, why=why)
            await self._teller.has_no_room(pod, why)

    def _shortage(self, pod: Pod) -> str:
        """What a pod asked for, and what its node is short of; "" if it asks for nothing."""
        demand = self._cluster.demand_of(pod)
        if demand is None:
            return ""
        lines = self._cluster.explain_node(demand, pod.spec.node_name).text().splitlines()
        return f"asked {needs_text(demand.request)}: {'; '.join(line.strip() for line in lines)}"

    def _spend(self, namespace: str, began: float) -> None:
        now = self._clock.monotonic()
        purse = self._purses.setdefault(namespace, Purse(_LOST_AT_ONCE, _LOST_SHARE, began))
        purse.spend(now - began, now)

    # -- what was left open

    async def _settle(self) -> None:
        """A patch of unknown fate keeps its claim until the pod is seen with it or gone, or until the API server can no
        longer act on it and shows the pod without."""
        now = self._clock.monotonic()
        for (uid, node), since in list(self._open.items()):
            pod = self._cluster.unplaced.get(uid)
            if pod is None:
                del self._open[uid, node]
            elif now - since >= self.settings.act_limit and not self._leadership.may_commit:
                await self._ask(pod, node)

    async def _ask(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        try:
            now = await self._client.get(PODS, meta.name, meta.namespace)
        except NotFound:
            now = None
        except KubeError as error:
            _log.warning("cannot learn the fate of a late placement, its claim stays", pod=pod.key, error=str(error))
            return
        del self._open[meta.uid, node]
        if now is not None and now.metadata.uid == meta.uid and PLACEMENT in now.metadata.annotations:
            self._cluster.see_pod(now)
        else:
            self._cluster.drop_claim(meta.uid, node)

    def _forget_others(self, waiting: Iterable[Pod]) -> None:
        uids, namespaces = set[str](), set[str]()
        for pod in waiting:
            uids.add(pod.metadata.uid)
            namespaces.add(pod.metadata.namespace)
        self._left_alone &= uids
        self._crowded_out = {uid: since for uid, since in self._crowded_out.items() if uid in uids}
        self._in_vain = {uid: seen for uid, seen in self._in_vain.items() if uid in uids}
        self._purses = {name: purse for name, purse in self._purses.items() if name in namespaces}
