"""Late placement: for pods that another scheduler has bound before they had a placement.

Doors without a bind verb cannot write one. The holder of the Lease sees `nodeName`, fits the pod on that node, and
patches the placement onto it; the agent waits for that. On the way a filter may have kept the part for the pod.

Every original writes its own record before it binds, so a bound pod without any was handled by none of them.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import NoReturn

import structlog

from aliquot import faults, metrics
from aliquot.clock import Clock
from aliquot.control.allowance import require_allowance
from aliquot.control.books import Books
from aliquot.control.keys import keys_of
from aliquot.control.leadership import Leadership
from aliquot.control.rights import PATCH_PODS
from aliquot.control.settings import ControlSettings
from aliquot.control.supposing import largest_first
from aliquot.control.telling import Teller
from aliquot.control.term import is_stale
from aliquot.dialects import Demand, Dialect
from aliquot.dialects.reading import SERVES
from aliquot.engine import needs_text
from aliquot.errors import AlreadyHeld, BadDemand, BadRecord, NoRoom, NotLeading
from aliquot.kube import PODS, ApiError, Client, KubeError, NotFound, NotSent
from aliquot.ledger import State
from aliquot.model import Node, Placement, Pod, as_shown
from aliquot.model.records import INVENTORY, PLACEMENT

_log = structlog.get_logger()
_EACH_SECONDS = 1.0
_AT_ONCE = 8
_NO_INVENTORY = "its node has no inventory of ours: another agent hands cards over there"


class LatePlacer:
    """`node_called` finds a node as the mirror has it. A pod for which there is no room is failed only when there was
    none for `late_seconds`: what frees it may be on its way to us."""

    def __init__(
        self,
        client: Client,
        books: Books,
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
        self._books = books
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
        for gone in self._books.expire(self._clock.monotonic()):
            if (pod := self._books.unplaced.get(gone.uid)) is not None:
                self._books.see_pod(pod)  # now its own keys count
        self._look_at_doubts()
        await self._settle()
        waiting = self._waiting()
        self._forget_others({pod.metadata.uid for pod in waiting})
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def place(pod: Pod) -> None:
            async with at_once:
                await self._look_at(pod)

        if waiting and self._may_act():
            async with asyncio.TaskGroup() as placing:
                for pod in waiting:
                    placing.create_task(place(pod))

    def _look_at_doubts(self) -> None:
        """A pod that may have any card of its node, since none was free for it, gets one when its node has changed."""
        ledger, before, self._doubts = self._books.ledger, self._doubts, {}
        for uid, pod in list(self._books.unplaced.items()):
            held = ledger.entry(uid, pod.spec.node_name)
            if held is not None and not held.placement.containers:
                if before.get(uid) != ledger.version(held.node):
                    self._books.see_pod(pod)
                self._doubts[uid] = ledger.version(held.node)

    def _waiting(self) -> list[Pod]:
        """Who was bound without a placement, as doors expect them to be placed; those left alone at the end."""
        unplaced = self._books.unplaced.values()
        ours = (pod for pod in unplaced if pod.metadata.uid not in self._left_alone)
        return largest_first(self._books, ours) + [pod for pod in unplaced if pod.metadata.uid in self._left_alone]

    def _may_act(self) -> bool:
        """On books that are in step, and with the right to write what they say."""
        return self._leadership.may_commit and PATCH_PODS not in self._leadership.lacking and self._is_in_step()

    def is_open(self, uid: str, node: str) -> bool:
        """Whether a placement of this pod is under way, or its fate unknown."""
        return (uid, node) in self._open

    # -- for doors without a bind verb

    def hold(self, pod: Pod, node: str, seconds: float, *, chosen: Placement | None = None) -> Placement:
        """Keep the part that a pod would get on a node, or the `chosen` one, for so long; asking again keeps it longer,
        and on another node moves it there. Raises Refused, NoRoom, BadDemand and NotLeading."""
        self._leadership.require()
        uid, ledger = pod.metadata.uid, self._books.ledger
        demand = self._books.demand_of(pod)
        if demand is None:
            return Placement(node, "", {})
        self.let_go(uid, but=node)
        held = ledger.entry(uid, node)
        if held is not None and held.until == inf:
            return held.placement
        require_allowance(ledger, uid, node, pod.metadata.namespace, self.settings.claims_per_namespace)
        placement = self._books.kept_for(demand, node) or chosen or self._books.fit(demand, node)
        kept = self._books.claim(demand.request, placement, until=self._clock.monotonic() + seconds)
        self.on_kept()
        return kept.placement

    def let_go(self, uid: str, *, but: str = "", only: str = "") -> bool:
        """Give back what is only kept for a pod, on every node, all but one, or one. Claims of a Binding stay. Returns
        whether there was any."""
        kept = [node for node in self.kept_on(uid, only) if node != but]
        for node in kept:
            self._books.drop_claim(uid, node)
        return bool(kept)

    def kept_on(self, uid: str, only: str = "") -> list[str]:
        """The nodes, or the one, on which something is only kept for a pod."""
        ledger = self._books.ledger
        nodes = ledger.nodes_of(uid)
        entries = [ledger.entry(uid, node) for node in (nodes & {only} if only else nodes)]
        return [kept.node for kept in entries if kept is not None and kept.until < inf]

    def why_never(self, node: str, dialect: Dialect) -> str:
        """Why nobody would write down the cards of a pod that another scheduler binds to a node; "" if somebody would,
        or nobody has to."""
        known = self._node_called(node)
        if known is None or dialect.agent_chooses or not dialect.names_cards or not self._books.cards(node).gpus:
            return ""
        return "" if INVENTORY in known.metadata.annotations else _NO_INVENTORY

    # -- one pod

    async def _look_at(self, pod: Pod) -> None:
        if self._books.unplaced.get(pod.metadata.uid) is not pod:
            return  # it was seen anew while others were placed
        try:
            demand = self._demand(pod)
            if demand is not None:
                await self._place(pod, demand)
        except BadDemand as error:
            self._leave_alone(pod, str(error))
        except NotLeading:
            return
        except NoRoom:
            await self._has_no_room(pod)
        except (KubeError, AlreadyHeld) as error:
            _log.warning("a bound pod could not be placed yet", pod=pod.key, node=pod.spec.node_name, why=str(error))

    def _demand(self, pod: Pod) -> Demand | None:
        """What to place late; None for a pod that has got its cards in whatever way, or is none of ours. Raises
        BadDemand."""
        node, demand = self._node_called(pod.spec.node_name), self._books.demand_of(pod)
        has_begun = pod.started or pod.metadata.deletion_timestamp is not None
        if node is None or demand is None or has_begun or PLACEMENT in pod.metadata.annotations:
            return None
        why = self._why_not_ours(pod, node, demand.dialect)
        if why:
            self._leave_alone(pod, why)
        return None if why else demand

    def _why_not_ours(self, pod: Pod, node: Node, dialect: Dialect) -> str:
        cards, label = self._books.cards(node.key), node.metadata.labels.get(f"{SERVES}{dialect.name}")
        if INVENTORY not in node.metadata.annotations:
            return _NO_INVENTORY
        if not cards.serves(dialect.name) or not (dialect.names_cards or label == "true"):
            return f"our agent does not serve {dialect.name} on its node"
        held = self._books.ledger.entry(pod.metadata.uid, node.key)
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
        keys = keys_of(pod, demand, placement, self._books, epoch=epoch, now_ns=self._clock.wall_ns())
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
                self._books.drop_claim(uid, node)
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
        if self._books.ledger.nodes_of(uid):  # it has not gone while we asked
            self._books.adoption.trust(uid)
            self._books.see_pod(placed)
        metrics.LATE.labels("placed").inc()
        _log.info("placed late", pod=pod.key, node=node, cards=sorted({part.uuid for part in placement.slices()}))
        await self._teller.is_placed_late(pod, placement)

    def _take(self, pod: Pod, demand: Demand) -> Placement:
        """The part that is about to be written on a pod, and that the ledger has for it from here on. Raises NoRoom."""
        uid, node, request = pod.metadata.uid, pod.spec.node_name, demand.request
        kept = self._books.kept_for(demand, node)
        held = self._books.ledger.entry(uid, node)
        if held is None or kept is not None:
            return self._books.claim(request, kept or self._books.fit(demand, node)).placement
        if held.placement.containers and (held.state is State.CLAIMED or self.is_open(uid, node)):
            sent = as_shown(held.placement, request, self._books.cards(node))
            return self._books.claim(request, sent).placement  # again, since there was no answer
        if uid in self._books.adoption.foretold and self._books.suits(held, demand):
            return self._books.claim(request, held.placement).placement  # its node may be handing it over
        with self._books.without(pod):  # cards that only count as its until somebody names them
            placement = self._books.fit(demand, node)
        return self._books.reassign(request, placement).placement

    async def _has_no_room(self, pod: Pod) -> None:
        now, node, demand = self._clock.monotonic(), pod.spec.node_name, self._books.demand_of(pod)
        since = self._crowded_out.setdefault(pod.metadata.uid, now)
        if demand is None or now - since < self.settings.late_seconds:
            return
        lines = self._books.explain_node(demand, node).text().splitlines()
        why = "; ".join(line.strip() for line in lines)
        metrics.LATE.labels("no_room").inc()
        _log.warning("a bound pod has no room and fails", pod=pod.key, node=node, why=why)
        await self._teller.has_no_room(pod, f"asked {needs_text(demand.request)}: {why}")

    # -- what was left open

    async def _settle(self) -> None:
        """A patch of unknown fate keeps its claim until the pod is seen with it or gone, or until the API server can no
        longer act on it and shows the pod without."""
        now = self._clock.monotonic()
        for (uid, node), since in list(self._open.items()):
            pod = self._books.unplaced.get(uid)
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
            self._books.see_pod(now)
        else:
            self._books.drop_claim(meta.uid, node)

    def _forget_others(self, waiting: set[str]) -> None:
        self._left_alone &= waiting
        self._crowded_out = {uid: since for uid, since in self._crowded_out.items() if uid in waiting}
