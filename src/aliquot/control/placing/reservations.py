"""Reservations: parts that a filter keeps for a pod, where the scheduler binds without asking us again."""

from aliquot.clock import Clock
from aliquot.config.sections.placement import CommitSection
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.placing.claim_limits import require_claim_limit
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed, Expired, PodSeen
from aliquot.ledger import State
from aliquot.model import Placement, Pod
from aliquot.signals import Signal


class Reservations:
    def __init__(self, cluster: ClusterState, leadership: Leadership, clock: Clock, settings: CommitSection) -> None:
        self._cluster = cluster
        self._leadership = leadership
        self._clock = clock
        self._settings = settings
        self.made: Signal[Placement] = Signal()

    def reconfigure(self, settings: CommitSection) -> None:
        self._settings = settings

    def reserve(self, pod: Pod, node: str, seconds: float, *, chosen: Placement | None = None) -> Placement:
        """Keep the part that a pod would get on a node, or the `chosen` one, for so long. Asking again keeps it longer;
        asking for another node moves it there. Raises Refused, NoRoom, BadDemand and NotLeading."""
        self._leadership.require()
        uid, ledger = pod.metadata.uid, self._cluster.ledger
        demand = self._cluster.demand_of(pod)
        if demand is None:
            return Placement(node, "", {})
        self.release(uid, but=node)
        held = ledger.entry(uid, node)
        if held is not None and held.state is not State.RESERVED:
            return held.placement
        require_claim_limit(ledger, uid, node, pod.metadata.namespace, self._settings.claims_per_namespace)
        placement = self._cluster.reserved_for(demand, node) or chosen or self._cluster.fit(demand, node)
        until = self._clock.monotonic() + seconds
        self._cluster.apply(Claimed(demand.request, placement, until))
        self.made.emit(placement)
        return placement

    def release(self, uid: str, *, but: str = "", only: str = "") -> bool:
        """Release a pod's reservations on every node, all but one, or one. Claims stay. Returns whether there was
        any."""
        nodes = [node for node in self.nodes_of(uid, only) if node != but]
        for node in nodes:
            self._cluster.drop_claim(uid, node)
        return bool(nodes)

    def nodes_of(self, uid: str, only: str = "") -> list[str]:
        """The nodes, or the one, on which a pod has a reservation."""
        ledger = self._cluster.ledger
        nodes = ledger.nodes_of(uid)
        entries = [ledger.entry(uid, node) for node in (nodes & {only} if only else nodes)]
        return [entry.node for entry in entries if entry is not None and entry.state is State.RESERVED]

    def expire(self) -> None:
        """Release every reservation whose time has come."""
        for uid in self._cluster.apply(Expired(self._clock.monotonic())).expired:
            if (pod := self._cluster.unplaced.get(uid)) is not None:
                self._cluster.apply(PodSeen(pod))  # now its own annotations count
