"""`commit`: the only way in which a decision reaches the API server, in one write.

A part is claimed in memory, then one Binding carries the node and the placement together. The claim is given back at
once only if the Binding was never sent or was refused. If its fate is unknown the claim stays, so that nobody else gets
the part, until the pod is seen bound or gone, or until the API server can no longer act on it and says "not bound".
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from weakref import WeakValueDictionary

import structlog

from aliquot import faults, metrics
from aliquot.clock import Clock
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.leadership.term import is_stale
from aliquot.control.placing.claim_limits import require_allowance
from aliquot.control.placing.pod_metadata import keys_of
from aliquot.control.settings import ControlSettings
from aliquot.control.state.cluster_state import ClusterState
from aliquot.dialects import Demand
from aliquot.errors import BadInput, BadRecord, NotLeading, Refused
from aliquot.kube import PODS, ApiError, Client, Conflict, KubeError, NotFound, NotSent
from aliquot.ledger import Entry
from aliquot.model import Placement, Pod, Request, as_shown
from aliquot.model.records import PLACEMENT, read_placement

_log = structlog.get_logger()
_FRESH_READ_SECONDS = 10.0


class Outcome(Enum):
    BOUND = "bound"
    ALREADY = "already bound as asked"


@dataclass(frozen=True)
class _Open:
    """A Binding whose fate is unknown."""

    pod: Pod
    node: str
    since: float


class Committer:
    """Commits only while `leadership` says that we may, and writes its epoch. `is_placed_late(uid, node)` tells whether
    a pod that somebody else has bound there meanwhile is being placed, with the claim that was made here."""

    def __init__(
        self,
        client: Client,
        cluster: ClusterState,
        clock: Clock,
        leadership: Leadership,
        settings: ControlSettings,
        *,
        is_placed_late: Callable[[str, str], bool] = lambda _uid, _node: False,
    ) -> None:
        self._is_placed_late = is_placed_late
        self._client = client
        self._cluster = cluster
        self._clock = clock
        self._leadership = leadership
        self.settings = settings
        self._one_at_a_time: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._open: dict[tuple[str, str], _Open] = {}

    @property
    def open(self) -> int:
        """How many Bindings have an unknown fate."""
        return len(self._open)

    def is_open(self, uid: str, node: str) -> bool:
        """Whether a commit of this pod is under way, or its Binding to this node has an unknown fate."""
        lock = self._one_at_a_time.get(uid)
        return (uid, node) in self._open or (lock is not None and lock.locked())

    async def commit(self, pod: Pod, node: str) -> Outcome:
        """Bind a pod to a node with the part that the engine chooses there.

        Raises BadDemand or Refused when nothing was done, and KubeError with the API server's words; after NoAnswer the
        pod may be bound, and asking again is safe.
        """
        with metrics.COMMIT_SECONDS.time():
            try:
                outcome = await self._commit_alone(pod, node)
            except BaseException as error:
                metrics.COMMITS.labels(_outcome(error)).inc()
                raise
        metrics.COMMITS.labels(outcome.name.lower()).inc()
        return outcome

    async def _commit_alone(self, pod: Pod, node: str) -> Outcome:
        """One commit of a pod at a time."""
        async with self._lock(pod.metadata.uid):
            demand = self._cluster.demand_of(pod)
            if demand is None:
                self._leadership.require()
                await self._client.bind(_binding(pod, node), timeout=self.settings.budget)
                return Outcome.BOUND
            return await self._commit(pod, node, demand)

    async def _commit(self, pod: Pod, node: str, demand: Demand) -> Outcome:
        uid, epoch = pod.metadata.uid, self._leadership.require()
        require_allowance(self._cluster.ledger, uid, node, pod.metadata.namespace, self.settings.claims_per_namespace)
        kept = self._cluster.kept_for(demand, node)  # for a while, before anything was sent
        held = None if kept else self._cluster.ledger.entry(uid, node)
        if held is not None:
            placement = self._claimed(held, demand)
        else:
            placement = self._cluster.claim(demand.request, kept or self._cluster.fit(demand, node)).placement
        faults.reach("after-claim")
        try:
            binding = self._binding(pod, node, demand, placement, epoch)
        except BaseException:
            if held is None:
                self._give_back(uid, node)
            raise
        try:
            await self._client.bind(binding, timeout=self.settings.budget)
        except Conflict as conflict:
            return await self._look_closer(pod, demand, placement, conflict, is_new=held is None)
        except (ApiError, NotSent) as error:
            if held is None:  # otherwise an earlier Binding may have been made
                self._give_back(uid, node)
            if is_stale(error):
                self._leadership.depose()
                raise NotLeading(str(error)) from error
            raise
        except BaseException:
            self._open[uid, node] = _Open(pod, node, self._clock.monotonic())
            raise
        faults.reach("after-binding-sent")
        self._cluster.confirm(uid, node)
        _log.info("bound", pod=pod.key, node=node, cards=sorted({part.uuid for part in placement.slices()}))
        return Outcome.BOUND

    def _lock(self, uid: str) -> asyncio.Lock:
        return self._one_at_a_time.setdefault(uid, asyncio.Lock())

    def _binding(self, pod: Pod, node: str, demand: Demand, placement: Placement, epoch: int) -> dict[str, object]:
        """Where users may rewrite what a pod asks for, only the pod as we have read it is bound."""
        keys = keys_of(pod, demand, placement, self._cluster, epoch=epoch, now_ns=self._clock.wall_ns())
        version = pod.metadata.resource_version if demand.dialect.demand_can_change(pod) else ""
        return _binding(pod, node, version, **keys)

    def _claimed(self, held: Entry, demand: Demand) -> Placement:
        """The placement of an earlier Binding without an answer. The same one is sent again, so that only one part is
        held, unless its cards were sold to others meanwhile, by another server or an original. Raises Refused."""
        if not self._cluster.suits(held, demand):
            raise Refused(
                f"an earlier Binding of this pod to {held.node} had no answer, and its cards are not free any more, "
                f"or not what it asks now; its fate is known within {self.settings.act_limit:g} s"
            )
        return as_shown(held.placement, demand.request, self._cluster.cards(held.node))

    async def _look_closer(
        self, pod: Pod, demand: Demand, placement: Placement, conflict: Conflict, *, is_new: bool
    ) -> Outcome:
        """The Binding was refused: because the pod is bound already, perhaps by an earlier one of ours, or for good?"""
        uid, node = pod.metadata.uid, placement.node
        try:
            now = await self._still_there(pod, self.settings.look)
        except BaseException:
            self._open[uid, node] = _Open(pod, node, self._clock.monotonic())
            raise
        if now is not None:
            self._cluster.see_pod(now)
            if self._is_placed(now, placement, demand.request):
                return Outcome.ALREADY
        if is_new or now is None:
            self._give_back(uid, node)
        raise Refused(str(conflict)) from conflict

    def _is_placed(self, pod: Pod, placement: Placement, request: Request) -> bool:
        """Whether a pod is bound with this placement; its record may have other names for the cards."""
        record = pod.metadata.annotations.get(PLACEMENT)
        if pod.spec.node_name != placement.node or record is None:
            return False
        cards = self._cluster.cards(placement.node)
        try:
            return as_shown(read_placement(record), request, cards) == as_shown(placement, request, cards)
        except BadRecord:
            return False

    def _give_back(self, uid: str, node: str) -> None:
        """A claim; what the cluster has shown as bound meanwhile stays, and so does what is being placed late."""
        if not self._is_placed_late(uid, node):
            self._cluster.drop_claim(uid, node)

    async def _still_there(self, pod: Pod, seconds: float) -> Pod | None:
        """A fresh read of the pod; None if it is gone, or was seen to go while we asked. Raises KubeError."""
        uid = pod.metadata.uid
        try:
            now = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace, timeout=seconds)
        except NotFound:
            return None
        return now if now.metadata.uid == uid and self._cluster.ledger.nodes_of(uid) else None

    async def settle(self) -> None:
        """Look after Bindings whose fate is unknown. One pass; called about once a second."""
        now = self._clock.monotonic()
        for key, open_ in list(self._open.items()):
            if self._cluster.is_settled(*key):
                del self._open[key]
            elif now - open_.since >= self.settings.act_limit:
                async with self._lock(open_.pod.metadata.uid):
                    if self._open.get(key) is open_:
                        await self._ask(key, open_)

    async def _ask(self, key: tuple[str, str], open_: _Open) -> None:
        uid, node = key
        try:
            pod = await self._still_there(open_.pod, _FRESH_READ_SECONDS)
        except KubeError as error:
            _log.warning("cannot learn the fate of a Binding, its claim stays", pod=open_.pod.key, error=str(error))
            return
        del self._open[key]
        if pod is not None and pod.spec.node_name == node:
            self._cluster.see_pod(pod)
        else:
            self._cluster.drop_claim(uid, node)
            _log.info("a Binding was never made, its claim is given back", pod=open_.pod.key, node=node)


def _outcome(error: BaseException) -> str:
    match error:
        case NotLeading():
            return "not_leading"
        case Refused() | BadInput():
            return "refused"
        case ApiError() | NotSent():
            return "not_made"
    return "unknown"


def _binding(pod: Pod, node: str, version: str = "", **keys: Mapping[str, str]) -> dict[str, object]:
    metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    if version:
        metadata["resourceVersion"] = version
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {**metadata, **keys},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
