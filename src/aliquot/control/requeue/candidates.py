"""Candidates for requeueing: waiting pods that fit now."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from math import inf

from aliquot.clock import Clock
from aliquot.control.requeue.nominations import Nominations
from aliquot.control.requeue.openings import Openings
from aliquot.control.requeue.waiting_pods import PodSignature, WaitingPod, WaitingPods
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.schedulable import OpenNodes
from aliquot.control.state.trial import Trial
from aliquot.dialects import Demand
from aliquot.model import Node, Placement

_SLICE_SECONDS = 0.01
"""Length of a stretch of work; calls of schedulers are answered in between."""


@dataclass
class Search:
    """A pass over the waiting pods, with its intermediate results."""

    queue: Iterator[WaitingPod]
    open_nodes: OpenNodes
    failed_at: dict[PodSignature | None, int] = field(default_factory=dict)
    """By signature, the opening after which no room was found."""
    is_done: bool = False


class Candidates:
    """Choose among the waiting pods. `node_called` finds a node in the informer cache."""

    def __init__(
        self,
        cluster: ClusterState,
        pods: WaitingPods,
        openings: Openings,
        nominations: Nominations,
        node_called: Callable[[str], Node | None],
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._searches = cluster.searches
        self._pods = pods
        self._openings = openings
        self._nominations = nominations
        self._node_called = node_called
        self._clock = clock

    @property
    def has_work(self) -> bool:
        """Whether a pod has not been tried since room may have become available for it."""
        return any(self._may_use(refused) for refused in self._pods)

    def search(self) -> Search:
        queue = sorted(filter(self._may_use, self._pods), key=lambda refused: refused.rank)
        return Search(iter(queue), OpenNodes(self._node_called))

    def choose(self, search: Search, most: int) -> list[WaitingPod]:
        """The pods that fit now next to all nominations, best first; nominates each of them. Continues where the last
        call stopped, for a short stretch."""
        began, chosen = self._clock.monotonic(), list[WaitingPod]()
        with self._cluster.trial() as trial:
            self._nominations.take(trial)
            for refused in search.queue:
                if refused in self._pods and self._may_use(refused):
                    if self._gets_room(trial, refused, search):
                        chosen.append(refused)
                    else:
                        refused.looked = self._state(refused)
                if len(chosen) >= most or self._clock.monotonic() - began > _SLICE_SECONDS:
                    return chosen
        search.is_done = True
        return chosen

    def next_search_at(self) -> float:
        """When the first pod that may not search now may search again; `inf` if there is none."""
        times = (self._searches.waits_until(refused.uid) for refused in self._pods if self._is_open_to(refused))
        now = self._clock.monotonic()
        return min((at for at in times if at > now), default=inf)

    def _state(self, refused: WaitingPod) -> tuple[int, int, bool]:
        """A value that changes when there may be room after a failed attempt."""
        return self._openings.ripe, self._nominations.ended, self._searches.is_waiting(refused.uid)

    def _may_use(self, refused: WaitingPod) -> bool:
        return self._is_open_to(refused) and refused.looked != self._state(refused)

    def _is_open_to(self, refused: WaitingPod) -> bool:
        """Whether room may have become available since the pod was refused."""
        return not refused.woken and refused.knows < self._openings.ripe

    def _gets_room(self, trial: Trial, refused: WaitingPod, search: Search) -> bool:
        demand, signature = self._pods.demand(refused), self._pods.signature(refused)
        if demand is None or self._cluster.ledger.nodes_of(refused.uid):
            return False
        if signature in search.failed_at and refused.knows >= search.failed_at[signature]:
            return False
        among = self._openings.since(refused.knows, demand.request.namespace)
        placement = self._best(demand, among, search.open_nodes.to(refused.pod))
        if placement is None or not trial.take(demand.request, placement):
            search.failed_at[signature] = refused.knows
            return False
        self._nominations.add(demand.request, placement)
        refused.woken = True
        return True

    def _best(self, demand: Demand, among: Collection[str] | None, is_open: Callable[[str], bool]) -> Placement | None:
        """The best placement among these nodes (None: all) that are open to the pod."""
        judgement = self._cluster.judge(demand, among)
        node = judgement.best(among)
        if node is not None and not is_open(node):  # rare; checking thousands of nodes is slow
            node = judgement.best(filter(is_open, judgement.fleet.nodes if among is None else among))
        return judgement.placement(node) if node is not None else None
