"""Live agents: an informer cache of the Leases that they renew, one per node, and the load that these report."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import structlog

from aliquot.clock import Clock, seconds_of
from aliquot.control.inputs.load_history import LoadHistory
from aliquot.control.inputs.pod_use import pod_uses
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Loaded, TimePassed
from aliquot.errors import BadRecord
from aliquot.kube import LEASES, Client, Informer, KubeError
from aliquot.kube.errors import Forbidden
from aliquot.kube.resources import Lease
from aliquot.model.load import FRESH_SECONDS, LOAD, NodeLoad, longest_silence, read_load
from aliquot.model.records import NODE_LEASES
from aliquot.signals import Signal

_log = structlog.get_logger()

_TICK_SECONDS = 5.0
_NAMES = 5


@dataclass(frozen=True, slots=True)
class NodeSample:
    """What a node measured, and when we learnt it."""

    node: str
    at: float
    load: NodeLoad


class AgentHeartbeats:
    """Trusts no other machine's clock: a Lease was renewed, and a load measured, when we saw it change. What the first
    list shows may be days old, so it counts only after its next change."""

    def __init__(
        self, client: Client, clock: Clock, cluster: ClusterState, has_node: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._client = client
        self._clock = clock
        self.cluster = cluster
        self._has_node = has_node
        self._missing: list[str] = []
        self._moved_at: dict[str, float] = {}
        self._heard_from: set[str] = set()
        """Leases that we saw renewed, or that were renewed just before the first list by their own account."""
        self.heard: Signal[str] = Signal()
        """Emitted with the node's name after a Lease has come, changed or gone."""
        self._measured_at: dict[str, float] = {}
        """By node, the time of its last sample by its own clock."""
        self._unread: dict[str, str] = {}
        self.samples: dict[str, NodeSample] = {}
        """The last sample of each node."""
        self.history = LoadHistory()
        self.leases: Informer[Lease] = Informer(client, LEASES, self.see, namespace=NODE_LEASES, clock=clock)

    async def run(self) -> None:
        """Returns, with a note, if we may not list them."""
        try:
            await self._client.list(LEASES, namespace=NODE_LEASES)
        except Forbidden as error:
            self._missing = [f"the server cannot notice silent agents, and knows no load: {error}"]
            return
        except KubeError:
            pass  # the informer retries, and reports it
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.leases.run())
            tasks.create_task(self._tick())

    def silent(self) -> dict[str, float]:
        """The seconds since agents renewed their Leases, of those that are late, by node. A Lease may outlive its
        Node."""
        now, late = self._clock.monotonic(), dict[str, float]()
        for lease in sorted(self.leases.all(), key=lambda lease: lease.metadata.name):
            silence = now - self._moved_at[lease.key]
            if silence > _seconds(lease) and self._has_node(lease.metadata.name):
                late[lease.metadata.name] = silence
        return late

    def silence(self, node: str) -> float | None:
        """Seconds since we saw a node's agent renew its Lease; None if it has none."""
        moved_at = self._moved_at.get(f"{NODE_LEASES}/{node}")
        return None if moved_at is None else self._clock.monotonic() - moved_at

    def lives(self, node: str) -> bool | None:
        """Whether a node's agent renews its Lease in time; None if it has no Lease, or if that is not known yet."""
        key = f"{NODE_LEASES}/{node}"
        lease = self.leases.get(key)
        if lease is None:
            return None
        if self._clock.monotonic() - self._moved_at[key] > _seconds(lease):
            return False
        return True if key in self._heard_from else None

    def has_fresh_load(self, node: str) -> bool:
        sample = self.samples.get(node)
        return sample is not None and self._clock.monotonic() - sample.at <= FRESH_SECONDS

    def notes(self) -> list[str]:
        told = [
            *_named("the agents of these nodes are silent", list(self.silent())),
            *_named("the load of these nodes cannot be read", sorted(self._unread)),
        ]
        return self._missing + told

    async def _tick(self) -> NoReturn:
        """Time matters only where load is known."""
        while True:
            await self._clock.sleep(_TICK_SECONDS)
            if self.samples:
                self.cluster.apply(TimePassed(self._clock.monotonic()))

    def see(self, old: Lease | None, new: Lease | None) -> None:
        """A Lease has changed, come or gone."""
        if new is None:
            assert old is not None, "an informer event has an old or a new object"
            self._forget(old)
        elif old is None:
            self._moved_at[new.key] = self._clock.monotonic()
            if self._is_recent(new):
                self._heard_from.add(new.key)
            self._read(new, is_first=True)
        else:
            if old.spec != new.spec:
                self._moved_at[new.key] = self._clock.monotonic()
                self._heard_from.add(new.key)
            self._read(new)
        self.heard.emit(_lease_of(old, new).metadata.name)

    def _is_recent(self, lease: Lease) -> bool:
        """By its own clock, which only spares a live agent some seconds of doubt after our start."""
        renewed = seconds_of(lease.spec.renew_time)
        return renewed is not None and abs(self._clock.wall_ns() / 1e9 - renewed) <= _seconds(lease)

    def _forget(self, lease: Lease) -> None:
        node = lease.metadata.name
        del self._moved_at[lease.key]
        self._heard_from.discard(lease.key)
        self._measured_at.pop(node, None)
        self._unread.pop(node, None)
        self._lose_load(node)

    def _read(self, lease: Lease, *, is_first: bool = False) -> None:
        node, text = lease.metadata.name, lease.metadata.annotations.get(LOAD, "")
        try:
            load = read_load(text) if text else None
        except BadRecord as error:
            if node not in self._unread:
                _log.warning("cannot use the load of a node", node=node, why=str(error))
            self._unread[node] = str(error)
            load = None
        else:
            self._unread.pop(node, None)
        if load is None:
            self._lose_load(node)
            return
        before, self._measured_at[node] = self._measured_at.get(node), load.at
        if not is_first and load.at != before:
            self._take(NodeSample(node, self._clock.monotonic(), load))

    def _take(self, sample: NodeSample) -> None:
        if not self.samples:
            self.cluster.apply(TimePassed(sample.at))
        self.samples[sample.node] = sample
        busy = {uuid: card.cores for uuid, card in sample.load.cards.items() if card.cores is not None}
        self.cluster.apply(Loaded(sample.node, sample.at, busy, frozenset(sample.load.pods)))
        entries, cards = self.cluster.ledger.entries(sample.node), self.cluster.cards(sample.node)
        known = cards.by_uuid  # no agent speaks for the cards of others
        own = {uuid: card for uuid, card in sample.load.cards.items() if uuid in known}
        self.history.take(sample.node, self._clock.wall_ns() / 1e9, own, pod_uses(sample.load, entries, cards))

    def _lose_load(self, node: str) -> None:
        if self.samples.pop(node, None) is not None:
            self.cluster.apply(Loaded(node))
            self.history.forget_node(node)


def _lease_of(old: Lease | None, new: Lease | None) -> Lease:
    lease = new or old
    assert lease is not None, "an informer event has an old or a new object"
    return lease


def _seconds(lease: Lease) -> int:
    return longest_silence(lease.spec.lease_duration_seconds)


def _named(what: str, nodes: list[str]) -> list[str]:
    more = f" and {len(nodes) - _NAMES} more" if len(nodes) > _NAMES else ""
    return [f"{what}: {', '.join(nodes[:_NAMES])}{more}"] if nodes else []
