"""The placement transaction: the only way in which a decision reaches the API server.

A transaction claims the part in memory, so that nobody else gets it, and then sends one write that carries the
placement. It gives the claim back at once only if the write was refused or never sent. If the outcome of the write is
unknown, the claim stays until the cluster shows it. The claim also ends once the API server can no longer act on the
write and a fresh read shows that it was not made.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

import structlog

from aliquot import faults
from aliquot.clock import Clock
from aliquot.config.sections.placement import CommitSection
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.leadership.term import is_stale
from aliquot.control.placing.pod_metadata import PodMetadata, placement_metadata
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Confirmed, PodSeen
from aliquot.dialects import Demand
from aliquot.errors import BadRecord, NotLeading, Refused
from aliquot.kube import PODS, ApiError, Client, Conflict, KubeError, NotFound, NotSent
from aliquot.ledger import State
from aliquot.model import Placement, Pod, Request, as_shown
from aliquot.model.records import PLACEMENT, read_placement

_log = structlog.get_logger()
_FRESH_READ_SECONDS = 10.0


@dataclass(frozen=True)
class Placed:
    """A pod that has its placement. `already`: an earlier write of ours had made it."""

    placement: Placement
    already: bool = False


class PlacementWrite(Protocol):
    """One kind of write that carries a placement, such as a Binding."""

    after_claim: faults.Point
    after_write: faults.Point
    """Fault points."""

    async def send(self, pod: Pod, node: str, metadata: PodMetadata, /) -> Pod | None:
        """Send the write. Returns the pod as the API server has it now, if the answer tells. Raises KubeError."""

    def is_made(self, pod: Pod, node: str, /) -> bool:
        """Whether a fresh read of the pod shows that the write was made."""


@dataclass(frozen=True)
class _Unknown:
    """A write whose outcome is unknown."""

    pod: Pod
    write: PlacementWrite
    sent: float


class PlacementTransactions:
    """Runs one transaction per pod at a time, and settles those whose outcome is unknown."""

    def __init__(
        self, client: Client, cluster: ClusterState, leadership: Leadership, clock: Clock, settings: CommitSection
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._leadership = leadership
        self._clock = clock
        self._settings = settings
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unknown: dict[tuple[str, str], _Unknown] = {}

    def reconfigure(self, settings: CommitSection) -> None:
        self._settings = settings

    @property
    def unknown(self) -> int:
        """How many writes have an unknown outcome."""
        return len(self._unknown)

    def is_unknown(self, uid: str, node: str) -> bool:
        return (uid, node) in self._unknown

    def is_busy(self, uid: str) -> bool:
        """Whether a transaction of this pod is under way."""
        lock = self._locks.get(uid)
        return lock is not None and lock.locked()

    def is_pending(self, uid: str, node: str) -> bool:
        """Whether a transaction of this pod is under way, or the outcome of its write on this node is unknown."""
        return self.is_busy(uid) or self.is_unknown(uid, node)

    def lock(self, uid: str) -> asyncio.Lock:
        """Held for as long as a transaction of the pod lasts."""
        return self._locks.setdefault(uid, asyncio.Lock())

    async def place(
        self, pod: Pod, node: str, demand: Demand, claim: Callable[[], Placement], write: PlacementWrite
    ) -> Placed:
        """Place a pod on a node: `claim` takes the part, `write` carries it to the API server. The caller holds the
        pod's lock.

        Raises Refused when nothing was done, NotLeading when another server leads, and KubeError with the API server's
        words. After NoAnswer the pod may be placed, and asking again is safe.
        """
        uid, epoch = pod.metadata.uid, self._leadership.require()
        is_first = self._is_first(uid, node)
        placement = claim()
        faults.reach(write.after_claim)
        try:
            metadata = placement_metadata(
                pod, demand, placement, self._cluster, epoch=epoch, now_ns=self._clock.wall_ns()
            )
        except BaseException:
            self._give_back(uid, node, is_first=is_first)
            raise
        try:
            written = await write.send(pod, node, metadata)
        except Conflict as conflict:
            return await self._resolve(pod, demand, placement, write, conflict, is_first=is_first)
        except (ApiError, NotSent) as error:
            self._give_back(uid, node, is_first=is_first)
            if is_stale(error):
                self._leadership.depose()
                raise NotLeading(str(error)) from error
            raise
        except BaseException:
            self._leave_unknown(pod, node, write)
            raise
        faults.reach(write.after_write)
        self._confirm(uid, node, written)
        return Placed(placement)

    def _is_first(self, uid: str, node: str) -> bool:
        """Whether no earlier write can have placed the pod on the node. If so, a refused write ends the claim."""
        held = self._cluster.ledger.entry(uid, node)
        return (held is None or held.state is State.RESERVED) and not self.is_unknown(uid, node)

    def _confirm(self, uid: str, node: str, written: Pod | None) -> None:
        """A pod that is gone by now stays gone."""
        self._unknown.pop((uid, node), None)
        self._cluster.apply(Confirmed(uid, node))
        if written is not None and self._cluster.ledger.nodes_of(uid):
            self._cluster.apply(PodSeen(written))

    def _give_back(self, uid: str, node: str, *, is_first: bool) -> None:
        if is_first:
            self._cluster.drop_claim(uid, node)

    def _leave_unknown(self, pod: Pod, node: str, write: PlacementWrite) -> None:
        self._unknown[pod.metadata.uid, node] = _Unknown(pod, write, self._clock.monotonic())

    # -- a conflict

    async def _resolve(
        self,
        pod: Pod,
        demand: Demand,
        placement: Placement,
        write: PlacementWrite,
        conflict: Conflict,
        *,
        is_first: bool,
    ) -> Placed:
        """The API server refused the write: because an earlier write of ours placed the pod, or for good?"""
        uid, node = pod.metadata.uid, placement.node
        try:
            now = await self._read(pod, self._settings.look)
        except BaseException:
            self._leave_unknown(pod, node, write)
            raise
        if now is not None:
            self._cluster.apply(PodSeen(now))
            if self._has(now, placement, demand.request):
                self._unknown.pop((uid, node), None)
                return Placed(placement, already=True)
        if now is not None and now.spec.node_name == node and uid in self._cluster.unplaced:
            self._leave_unknown(pod, node, write)  # bound by somebody else: late placement writes our claim
        else:
            self._give_back(uid, node, is_first=is_first or now is None)
        raise Refused(str(conflict)) from conflict

    def _has(self, pod: Pod, placement: Placement, request: Request) -> bool:
        """Whether a pod is bound with this placement; its record may have other names for the cards. On an observed
        node there is no record."""
        record, cards = pod.metadata.annotations.get(PLACEMENT), self._cluster.cards(placement.node)
        if pod.spec.node_name != placement.node or record is None:
            return pod.spec.node_name == placement.node and cards.observed
        try:
            return as_shown(read_placement(record), request, cards) == as_shown(placement, request, cards)
        except BadRecord:
            return False

    async def _read(self, pod: Pod, seconds: float) -> Pod | None:
        """A fresh read of the pod; None if it is gone, or was seen to go meanwhile. Raises KubeError."""
        uid = pod.metadata.uid
        try:
            now = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace, timeout=seconds)
        except NotFound:
            return None
        return now if now.metadata.uid == uid and self._cluster.ledger.nodes_of(uid) else None

    # -- an unknown outcome

    async def settle(self) -> None:
        """Look after writes whose outcome is unknown. One pass; called about once a second."""
        now = self._clock.monotonic()
        for (uid, node), unknown in list(self._unknown.items()):
            if self._unknown.get((uid, node)) is not unknown:
                continue  # it became known while we asked for another
            if self._is_shown(uid, node):
                del self._unknown[uid, node]
            elif now - unknown.sent >= self._settings.act_limit:
                async with self.lock(uid):
                    if self._unknown.get((uid, node)) is unknown:
                        await self._ask(uid, node, unknown)

    def _is_shown(self, uid: str, node: str) -> bool:
        """Whether the cluster has shown what became of a write."""
        return self._cluster.is_settled(uid, node) and uid not in self._cluster.unplaced

    async def _ask(self, uid: str, node: str, unknown: _Unknown) -> None:
        try:
            pod = await self._read(unknown.pod, _FRESH_READ_SECONDS)
        except KubeError as error:
            _log.warning(
                "cannot learn the outcome of a write, keeping its claim", pod=unknown.pod.key, error=str(error)
            )
            return
        del self._unknown[uid, node]
        if pod is not None and unknown.write.is_made(pod, node):
            self._cluster.apply(PodSeen(pod))
        else:
            self._cluster.drop_claim(uid, node)
            _log.info("a write never happened, released its claim", pod=unknown.pod.key, node=node)
