"""The audit: compares the cluster state with the API server every minute, and repairs differences.

It lists everything by a quorum read. Where the API server returns the same resourceVersion as our informer cache, the
cluster state must agree with that object, because it has handled every watch event. Nothing else is compared, so
changes in flight (a lagging watch, a Binding whose outcome is unknown, a recent placement) do not count as differences.
An informer cache that stands still while the API server moves on has missed an event, and is listed again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NoReturn, TypeVar

import structlog

from aliquot import metrics
from aliquot.clock import Clock, after
from aliquot.control.audit.drift import FORGED, Drift, Sight, drift_of, said, said_of
from aliquot.control.audit.staleness import Staleness
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Dropped, NodeLost, NodeSeen, PodForgotten, PodSeen, Recounted
from aliquot.control.state.host_room import HostRoom
from aliquot.dialects import cards_of
from aliquot.errors import BadRecord
from aliquot.kube import NODES, PODS, Client, Informer, KubeError
from aliquot.kube.resources import ApiResource, ObjectT
from aliquot.ledger import Entry, State
from aliquot.model import Node, Object, Pod

_log = structlog.get_logger()
_Item = TypeVar("_Item")

_CHUNK = 20
"""Objects checked before the loop yields."""
_EXPIRY_SECONDS = 10.0
"""Expired claims are released once a second; only a long overdue claim was overlooked."""
_NAMES_OF_NODES = ApiResource(NODES.prefix, NODES.plural, Object, NODES.namespaced)
_NAMES_OF_PODS = ApiResource(PODS.prefix, PODS.plural, Object, PODS.namespaced)
"""Versions are enough: the same version is the same object."""


class Audit:
    """`is_pending(uid, node)` says whether a transaction still works on a claim. Every replica audits its own cluster
    state."""

    def __init__(
        self,
        client: Client,
        cluster: ClusterState,
        nodes: Informer[Node],
        pods: Informer[Pod],
        *,
        pods_on: Callable[[str], Iterable[Pod]],
        is_pending: Callable[[str, str], bool],
        clock: Clock,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._nodes = nodes
        self._pods = pods
        self._pods_on = pods_on
        self._is_pending = is_pending
        self._clock = clock
        self._stale_nodes = Staleness(nodes, clock)
        self._stale_pods = Staleness(pods, clock)
        self._seen: dict[str, Sight] = {}
        """Every bound pod as the last audit saw it."""

    async def run(self, seconds: Callable[[], float]) -> NoReturn:
        """Audit periodically; `seconds` may change meanwhile."""
        while True:
            await after(seconds, self._clock)
            try:
                await self.look()
            except KubeError as error:
                metrics.AUDITS.labels("failed").inc()
                _log.warning("cannot audit the cluster state", error=str(error))

    async def look(self) -> list[Drift]:
        """Run a single audit. Returns the differences, already repaired, counted and logged. Raises KubeError."""
        if self._nodes.trouble or self._pods.trouble:
            metrics.AUDITS.labels("skipped").inc()
            return []
        found = [*await self._look_at_nodes(), *await self._look_at_pods(), *await self._look_at_sums()]
        for drift in found:
            metrics.DRIFT.labels(drift.kind).inc()
            _log.error("the cluster state differed from the API server", **drift.words())
        metrics.AUDITS.labels("drift" if found else "clean").inc()
        return found

    # -- nodes

    async def _look_at_nodes(self) -> list[Drift]:
        found: list[Drift] = []
        listed: set[str] = set()
        self._stale_nodes.begin()
        async for page in self._client.pages(_NAMES_OF_NODES):
            async for node in _in_turns(page.items):
                listed.add(node.key)
                cached = self._nodes.get(node.key)
                if self._stale_nodes.is_in_sync(node) and cached is not None:
                    found += self._check_node(cached)
        for name in self._cluster.totals.nodes:
            if name not in listed and self._nodes.get(name) is None:
                self._cluster.apply(NodeLost(name))
                found.append(Drift("cards", node=name, was="a node", now="no such node"))
        return found + await _caught_up(self._nodes, self._stale_nodes)

    def _check_node(self, node: Node) -> Iterator[Drift]:
        try:
            cards = cards_of(node, self._cluster.dialects)
        except BadRecord:
            return  # the last good inventory stays, and it is unknown here
        was, host = self._cluster.marks.without_marks(self._cluster.cards(node.key)), self._hosts.offered_by(node.key)
        has_cards = was == cards and self._cluster.totals.knows(node.key)
        if has_cards and host == node.host:
            return
        self._cluster.apply(NodeSeen(node))
        for pod in self._pods_on(node.key):
            self._cluster.apply(PodSeen(pod))
        if has_cards:
            yield Drift("host", node=node.key, was=said_of(host), now=said_of(node.host))
        else:
            yield Drift("cards", node=node.key, was=", ".join(was.by_uuid), now=", ".join(cards.by_uuid))

    # -- pods

    async def _look_at_pods(self) -> list[Drift]:
        found: list[Drift] = []
        listed: set[str] = set()
        seen: dict[str, Sight] = {}
        before = {(entry.uid, entry.node): entry for entry in self._cluster.ledger.all()}
        await asyncio.sleep(0)
        self._stale_pods.begin()
        async for page in self._client.pages(_NAMES_OF_PODS):
            async for pod in _in_turns(page.items):
                listed.add(pod.metadata.uid)
                cached = self._pods.with_uid(pod.metadata.uid)
                if self._stale_pods.is_in_sync(pod) and cached is not None:
                    found += self._check_claims(cached, before)
                    found += self._check_holding(cached, before, seen)
                    found += self._check_host(cached)
                elif pod.metadata.uid in self._seen:
                    seen[pod.metadata.uid] = self._seen[pod.metadata.uid]
        self._seen = seen
        found += self._check_ghosts(entry for entry in before.values() if entry.uid not in listed)
        async for uid in _in_turns(self._hosts.uids):
            if uid not in listed and self._pods.with_uid(uid) is None:
                found += self._check_ghost_host(uid)
        return found + await _caught_up(self._pods, self._stale_pods)

    def _check_claims(self, pod: Pod, before: Mapping[tuple[str, str], Entry]) -> Iterator[Drift]:
        """Check a pod's claims on nodes where it is not bound: only live claims may exist."""
        uid = pod.metadata.uid
        for node in self._cluster.ledger.nodes_of(uid):
            is_home = node == pod.spec.node_name and not pod.ended
            entry = self._cluster.ledger.entry(uid, node)
            if entry is not None and not is_home and entry is before.get((uid, node)) and not self._is_alive(entry):
                self._cluster.apply(Dropped(uid, node))
                yield Drift("claim", pod.key, node, said(entry.charges), "nothing")

    def _check_holding(
        self, pod: Pod, before: Mapping[tuple[str, str], Entry], seen: dict[str, Sight]
    ) -> Iterator[Drift]:
        """Check what a pod holds on its node against its record, or the record as first seen."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node or pod.ended:
            return
        now, then = self._sight(pod), self._seen.get(uid)
        if now.entry is not before.get((uid, node)):  # the cluster state is ahead of the informer cache
            if then is not None:
                seen[uid] = then
            return
        if then is None or not then.is_same(now):
            drift = drift_of(now, then, self._cluster.dialects, self._is_alive)
            if drift is not None and drift.kind != FORGED:
                self._cluster.apply(PodForgotten(uid))
                self._cluster.apply(PodSeen(pod))
                now = self._sight(pod)
                drift = replace(drift, now=said(now.entry.charges) if now.entry else "nothing")
            if drift is not None:
                yield drift
        seen[uid] = now

    def _check_host(self, pod: Pod) -> Iterator[Drift]:
        """Check what counts of a pod's CPU and memory."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        then, was = self._seen.get(uid), self._hosts.of(uid, self._hosts.node_of(uid))
        if then is not None and then.pod is pod and then.host is was:
            return
        is_bound = bool(node) and not pod.ended
        if (was, self._hosts.node_of(uid)) != ((pod.host, node) if is_bound else (None, "")):
            self._cluster.apply(PodSeen(pod) if is_bound else PodForgotten(uid))
            yield Drift("host", pod.key, node, said_of(was), said_of(pod.host if is_bound else None))

    def _check_ghost_host(self, uid: str) -> Iterator[Drift]:
        """Forget the CPU and memory of a pod that the API server does not know. Only informer events bring them, so no
        claim is in flight."""
        node = self._hosts.node_of(uid)
        if node:
            was = self._hosts.of(uid, node)
            self._cluster.apply(PodForgotten(uid))
            yield Drift("host", uid, node, said_of(was), "no such pod")

    def _check_ghosts(self, entries: Iterable[Entry]) -> Iterator[Drift]:
        """Drop entries, made before the list, of pods that the API server does not know."""
        for entry in entries:
            is_as_before = self._cluster.ledger.entry(entry.uid, entry.node) is entry
            if is_as_before and self._pods.with_uid(entry.uid) is None and not self._is_alive(entry):
                self._cluster.apply(PodForgotten(entry.uid))
                yield Drift("ghost", entry.owner.pod, entry.node, said(entry.charges), "no such pod")

    def _sight(self, pod: Pod) -> Sight:
        uid, node = pod.metadata.uid, pod.spec.node_name
        adoption = self._cluster.adoption
        first = adoption.first_records.get(uid)
        is_unplaced = uid in adoption.unplaced or uid in adoption.observed.unnamed
        entry, cards = self._cluster.ledger.entry(uid, node), self._cluster.cards(node)
        return Sight(pod, entry, cards, first, is_unplaced, self._hosts.of(uid, node))

    @property
    def _hosts(self) -> HostRoom:
        return self._cluster.totals.hosts

    def _is_alive(self, claim: Entry) -> bool:
        """Whether a transaction works on a claim, or it will expire."""
        if claim.state is State.BOUND:
            return False
        if claim.until is not None:
            return self._clock.monotonic() - _EXPIRY_SECONDS < claim.until
        return self._is_pending(claim.uid, claim.node)

    # -- sums

    async def _look_at_sums(self) -> list[Drift]:
        found: list[Drift] = []
        async for node in _in_turns(self._cluster.totals.nodes):
            if wrong := self._cluster.totals.wrong_counts(node):
                self._cluster.apply(Recounted(node))
                found += [
                    Drift(kind, node=node, was="not the sum of what its pods hold", now="recounted") for kind in wrong
                ]
        if not self._cluster.totals.usage.is_summed_right():
            self._cluster.apply(Recounted())
            found.append(Drift("quota", was="not the sum of what the pods of each namespace hold", now="recounted"))
        return found


async def _caught_up(informer: Informer[ObjectT], staleness: Staleness[ObjectT]) -> list[Drift]:
    missed = staleness.missed()
    if missed:
        await informer.refresh()
    return [Drift("missed", now=key) for key in missed]


async def _in_turns(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """Yield items one by one, and let other tasks run now and then."""
    for number, item in enumerate(items):
        if number % _CHUNK == _CHUNK - 1:
            await asyncio.sleep(0)
        yield item
