"""Ledger, Fleet and quotas together, kept equal to what the cluster shows."""

from dataclasses import replace
from math import inf

import structlog

from aliquot.dialects import Demand, Dialect, Dialects, Holding, cards_of, demand_of, holding_of, standard_dialects
from aliquot.engine import (
    Census,
    Decision,
    Explanation,
    Fleet,
    Holder,
    Judgement,
    NodeState,
    Preemption,
    Quotas,
    Usage,
    check_policies,
    decide,
    explain,
    judge,
    preempt,
)
from aliquot.errors import AliquotError, BadConfig, BadRecord, NoRoom
from aliquot.ledger import Entry, Ledger, Owner, State
from aliquot.model import Node, NodeGpus, Part, Placement, Pod, Reason, Request, charges
from aliquot.model.records import PLACEMENT

_log = structlog.get_logger()


class Books:
    """Every change of the ledger goes through here, so that the Fleet's numbers and the quotas' are never others."""

    def __init__(self, dialects: Dialects | None = None) -> None:
        """Raises BadConfig for a private policy that cannot be used, or a dialect whose default is none."""
        self.dialects = dialects or standard_dialects()
        for dialect in self.dialects.values():
            _check_defaults(dialect)
        self.ledger = Ledger()
        self.fleet = Fleet()
        self.quotas = Quotas()
        self._usage = Usage()
        self._census = Census()
        self._cards: dict[str, NodeGpus] = {}
        self._oversold: dict[str, set[str]] = {}
        self._provisional: set[str] = set()
        """Pods that an original placed: until it has handed their cards over, it may correct its record."""

    # -- what the cluster shows

    def see_node(self, node: Node) -> bool:
        """A node as it is now. Returns whether its cards changed; cards that cannot be read keep the last good ones."""
        try:
            cards = cards_of(node, self.dialects)
        except BadRecord as error:
            _log.error("a node's inventory cannot be read, keeping the last", node=node.key, error=str(error))
            cards = self._cards.get(node.key, NodeGpus(node.key, (), unit_mib=1))
        if self._cards.get(node.key) == cards:
            return False
        self._cards[node.key] = cards
        self.ledger.set_cards(cards)
        self._census.put(cards)
        for entry in self.ledger.entries(node.key):
            self._count(entry)
        self._refresh(node.key)
        return True

    def lose_node(self, node: str) -> None:
        self._cards.pop(node, None)
        self.ledger.drop_node(node)
        self._census.remove(node)
        self.fleet.remove(node)

    def see_pod(self, pod: Pod) -> None:
        """A pod as it is now: bound pods hold their part until their containers have ended."""
        if pod.ended:
            self.forget_pod(pod.metadata.uid)
        elif pod.spec.node_name:
            if not self._is_at_home(pod):
                self._adopt(pod)
            for claimed in self.ledger.nodes_of(pod.metadata.uid) - {pod.spec.node_name}:
                self.drop_claim(pod.metadata.uid, claimed)

    def _is_at_home(self, pod: Pod) -> bool:
        """Whether what a bound pod holds is settled: on cards that its node has. Then its record is not read again, so
        a user who rewrites it gains nothing."""
        entry = self.ledger.entry(pod.metadata.uid, pod.spec.node_name)
        if entry is None or entry.state is not State.BOUND or not entry.placement.containers:
            return False
        if pod.metadata.uid in self._provisional:
            return False
        return entry.charges.keys() <= self.cards(pod.spec.node_name).by_uuid.keys()

    def forget_pod(self, uid: str) -> None:
        self._provisional.discard(uid)
        for node in self.ledger.release(uid):
            self._uncount(uid, node)

    def expire(self, now: float) -> list[Entry]:
        """Give back every claim whose time has come."""
        late = self.ledger.expire(now)
        for entry in late:
            self._uncount(entry.uid, entry.node)
        return late

    def _adopt(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        before = self.ledger.nodes_of(uid)
        if not self.cards(node).gpus:
            return  # without cards nothing can be held; they may come, and then the pod is seen again
        try:
            holding = holding_of(pod, self.cards(node), self.dialects)
        except AliquotError as error:
            _log.warning("a bound GPU pod is not placed", pod=pod.key, node=node, why=str(error))
            return
        if holding is None:
            return
        if holding.unnamed:
            holding = self._any_cards(pod, holding)
        held = self.ledger.entry(uid, node)
        if holding.doubt and not holding.placement.containers and held is not None and held.placement.containers:
            self.ledger.confirm(uid, node)
            return  # a card went away under the pod: what it held before is known, and stays
        if holding.doubt and held is None:
            _log.error(
                "a pod has a card, but which? charged on all it may be", pod=pod.key, node=node, why=holding.doubt
            )
        self._note_if_provisional(pod, holding.placement.dialect)
        self._count(self.ledger.adopt(_owner(pod), holding.placement, holding.charges))
        self._refresh(node)
        for other in before - {node}:
            self._uncount(uid, other)

    def _note_if_provisional(self, pod: Pod, dialect: str) -> None:
        if PLACEMENT in pod.metadata.annotations or self.dialects[dialect].handed_over(pod):
            self._provisional.discard(pod.metadata.uid)
        else:
            self._provisional.add(pod.metadata.uid)

    def _any_cards(self, pod: Pod, holding: Holding) -> Holding:
        """A pod that got whole cards from kubelet, which alone knows which: as many empty ones count as its."""
        node, dialect = pod.spec.node_name, self.dialects[holding.placement.dialect]
        request = dialect.held(pod)
        held = self.ledger.entry(pod.metadata.uid, node)
        known = held is not None and bool(held.placement.containers)
        placement = held.placement if held and known else judge(self.fleet, request).placement(node)
        if placement is None:
            everything = {gpu.uuid: Part(whole=True).on(gpu, 1) for gpu in self.cards(node).gpus}
            return replace(holding, charges=everything, doubt=f"{holding.unnamed} cards are not free")
        return Holding(placement, charges(placement, request))

    # -- decisions

    def demand_of(self, pod: Pod) -> Demand | None:
        """What a pod asks for; None without GPU. Raises BadDemand, also for a policy that there is not."""
        demand = demand_of(pod, self.dialects)
        if demand is not None:
            wishes, ours = demand.request.wishes, _our_prefix(self.dialects)
            check_policies(
                wishes.gpu_policy, wishes.node_policy, gpu_field=f"{ours}/gpu-policy", node_field=f"{ours}/node-policy"
            )
        return demand

    def judge(self, demand: Demand) -> Judgement:
        """Every node judged for a demand, with its namespace's quota."""
        request, wishes, dialect = demand.request, demand.request.wishes, demand.dialect
        return judge(
            self.fleet,
            request,
            wishes.gpu_policy or dialect.gpu_policy,
            wishes.node_policy or dialect.node_policy,
            decision=self._quota(request),
        )

    def explain(self, demand: Demand) -> Explanation:
        """Why a demand fits or does not, on every node, and what would make it fit."""
        holders = {node: self.holders(node) for node in self._cards}
        return explain(self._states(), demand.request, self._quota(demand.request), holders)

    def preempt(self, demand: Demand) -> Preemption | None:
        """The cheapest pods of lower priority whose end makes a demand fit somewhere."""
        quota = self._quota(demand.request)
        states = {node: quota.permits(state) for node, state in self._states().items()}
        return preempt(states, demand.request, {node: self.holders(node) for node in states})

    def holders(self, node: str) -> list[Holder]:
        entries = self.ledger.entries(node)
        return [Holder(entry.uid, entry.owner.pod, entry.owner.priority, entry.charges) for entry in entries]

    def _quota(self, request: Request) -> Decision:
        return decide(self.quotas, self._usage, self._census, request)

    def _states(self) -> dict[str, NodeState]:
        return {node: NodeState(cards, self.ledger.used(node)) for node, cards in self._cards.items()}

    def cards(self, node: str) -> NodeGpus:
        return self._cards.get(node) or NodeGpus(node, (), unit_mib=1)

    def claim(self, request: Request, placement: Placement, *, until: float = inf) -> Entry:
        """Take the parts; with `until`, only for so long unless the pod is bound before. Raises NoRoom."""
        owner, taken = Owner(request.uid, request.pod, request.priority), charges(placement, request)
        if why := self._quota(request).exceeded(self.cards(placement.node), taken):
            raise NoRoom(f"{Reason.OVER_QUOTA.value}: {why}")
        entry = self.ledger.claim(owner, placement, taken, until=until)
        self._count(entry)
        self._refresh(placement.node)
        return entry

    def confirm(self, uid: str, node: str) -> None:
        self.ledger.confirm(uid, node)

    def is_settled(self, uid: str, node: str) -> bool:
        """Whether the cluster has shown what became of a claim: bound, gone, or bound elsewhere."""
        entry = self.ledger.entry(uid, node)
        return entry is None or entry.state is State.BOUND

    def drop_claim(self, uid: str, node: str) -> None:
        self.ledger.release(uid, node)
        self._uncount(uid, node)

    # -- inside

    def _count(self, entry: Entry) -> None:
        self._usage.add(entry.uid, entry.owner.namespace, self.cards(entry.node), entry.charges)

    def _uncount(self, uid: str, node: str) -> None:
        self._usage.remove(uid, node)
        self._refresh(node)

    def _refresh(self, node: str) -> None:
        cards = self._cards.get(node)
        if cards is not None:
            self.fleet.put(cards, self.ledger.used(node), self.ledger.entries(node))
        self._report_oversold(node)

    def _report_oversold(self, node: str) -> None:
        """Once per card: it happens only where others sold too, and lasts until one of the pods ends."""
        oversold = set(self.ledger.oversold(node))
        for uuid in oversold - self._oversold.get(node, set()):
            _log.error("a card is sold beyond its size", node=node, card=uuid)
        self._oversold[node] = oversold
        if not oversold:
            del self._oversold[node]


def _our_prefix(dialects: Dialects) -> str:
    ours = dialects.get("aliquot")
    return ours.prefix if ours else "aliquot.io"


def _check_defaults(dialect: Dialect) -> None:
    check_policies(
        dialect.gpu_policy,
        dialect.node_policy,
        gpu_field=f"dialect {dialect.name}, gpu_policy",
        node_field=f"dialect {dialect.name}, node_policy",
        error=BadConfig,
    )


def _owner(pod: Pod) -> Owner:
    return Owner(pod.metadata.uid, pod.key, pod.spec.priority or 0)
