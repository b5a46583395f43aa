"""Ledger and Fleet together, kept equal to what the cluster shows."""

import structlog

from aliquot.dialects import Demand, Dialects, cards_of, demand_of, holding_of, standard_dialects
from aliquot.engine import Fleet, Judgement, judge
from aliquot.errors import AliquotError, BadRecord
from aliquot.ledger import Entry, Owner, Ledger, State
from aliquot.model import Node, NodeGpus, Placement, Pod, Request, charges

_log = structlog.get_logger()


class Books:
    """Every change of the ledger goes through here, so that the Fleet's numbers are never others."""

    def __init__(self, dialects: Dialects | None = None) -> None:
        self.dialects = dialects or standard_dialects()
        self.ledger = Ledger()
        self.fleet = Fleet()
        self._cards: dict[str, NodeGpus] = {}
        self._oversold: dict[str, set[str]] = {}

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
        self._refresh(node.key)
        return True

    def lose_node(self, node: str) -> None:
        self._cards.pop(node, None)
        self.ledger.drop_node(node)
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
        return entry.charges.keys() <= self.cards(pod.spec.node_name).by_uuid.keys()

    def forget_pod(self, uid: str) -> None:
        for node in self.ledger.release(uid):
            self._refresh(node)

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
        if holding.doubt and self.ledger.entry(uid, node) is None:
            _log.error("a pod has a card, but which? charged on all", pod=pod.key, node=node, why=holding.doubt)
        self.ledger.adopt(_owner(pod), holding.placement, holding.charges)
        for changed in before | {node}:
            self._refresh(changed)

    # -- decisions

    def demand_of(self, pod: Pod) -> Demand | None:
        """What a pod asks for; None without GPU. Raises BadDemand."""
        return demand_of(pod, self.dialects)

    def judge(self, demand: Demand) -> Judgement:
        return judge(self.fleet, demand.request, demand.dialect.gpu_policy)

    def cards(self, node: str) -> NodeGpus:
        return self._cards.get(node) or NodeGpus(node, (), unit_mib=1)

    def claim(self, request: Request, placement: Placement) -> Entry:
        owner = Owner(request.uid, request.pod, request.priority)
        entry = self.ledger.claim(owner, placement, charges(placement, request))
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
        self._refresh(node)

    def _refresh(self, node: str) -> None:
        cards = self._cards.get(node)
        if cards is not None:
            self.fleet.put(cards, self.ledger.used(node))
        self._report_oversold(node)

    def _report_oversold(self, node: str) -> None:
        """Once per card: it happens only where others sold too, and lasts until one of the pods ends."""
        oversold = set(self.ledger.oversold(node))
        for uuid in oversold - self._oversold.get(node, set()):
            _log.error("a card is sold beyond its size", node=node, card=uuid)
        self._oversold[node] = oversold
        if not oversold:
            del self._oversold[node]


def _owner(pod: Pod) -> Owner:
    return Owner(pod.metadata.uid, pod.key, pod.spec.priority or 0)
