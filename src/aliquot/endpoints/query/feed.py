"""Keeps the objects of the query API up to date with the control plane.

A change marks a node. Its object, and those of the pods on it, are made again in short stretches on the event loop, and
stored if they differ.
"""

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import structlog

from aliquot.apiserver.objects import Object, key_of
from aliquot.apiserver.store import Store
from aliquot.clock import Clock, came, rfc3339
from aliquot.control import ControlPlane
from aliquot.control.inputs.pod_use import pod_uses
from aliquot.endpoints.query.nodes import Health, node_object
from aliquot.endpoints.query.pods import name_of, pod_metadata, pod_spec, pod_status
from aliquot.endpoints.query.resources import GPU_INFOS, POD_GPUS, POD_RESOURCES, QueryResource
from aliquot.endpoints.stretches import Stretches
from aliquot.ledger import State
from aliquot.model import Pod
from aliquot.model.load import NodeLoad
from aliquot.model.records import NODE_LEASES

_log = structlog.get_logger()

_LOOK_SECONDS = 1.0
_LEASES_SECONDS = 2.0
_STRETCH_SECONDS = 0.005
STEP = 2**20
"""Between two revisions. Milliseconds since 1970 have 41 bits, and clients read 63."""
RENEWAL_SECONDS = 30.0
"""How often an object is renewed of which only times and use change."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """What an agent said, and when we last took it over."""

    lives: bool | None
    seen: str
    load: NodeLoad | None
    at: float


class Feed:
    """Run it alongside the plane."""

    def __init__(self, plane: ControlPlane, store: Store) -> None:
        self._plane = plane
        self._store = store
        self._clock: Clock = plane.clock
        self._marked: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._made: dict[str, int] = {}
        """The ledger's version of each node whose objects were made."""
        self._last_heard: dict[str, _Heard] = {}
        self._pods: dict[str, set[tuple[str, str]]] = {}
        """Namespaces and names of the pods that have objects, by node."""
        self._ledger_changes = -1
        self._looked_at = -math.inf
        self.is_complete = False
        """Whether everything that the plane knew at its start has been made."""
        plane.touched.subscribe(self._mark)
        plane.heartbeats.heard.subscribe(self._heard)

    @property
    def has_work(self) -> bool:
        """Whether objects wait to be made again."""
        return bool(self._marked)

    async def run(self) -> NoReturn:
        await self._plane.pods.synced.wait()
        await came(self._plane.heartbeats.leases.synced, _LEASES_SECONDS, self._clock)  # so that no node is in doubt
        for name in [*(node.key for node in self._plane.nodes.all()), *self._holding()]:
            self._mark(name)
        while True:
            await self._make_marked()
            self.is_complete = True
            until_look = self._looked_at + _LOOK_SECONDS - self._clock.monotonic()
            if until_look <= 0:
                self.look()
            # even when a look takes longer than the time between two, others have their turn
            await came(self._wake, until_look if until_look > 0 else _LOOK_SECONDS, self._clock)
            self._wake.clear()

    def look(self) -> None:
        """Mark the nodes that have changed without an event: silent agents, and parts that were reserved."""
        self._looked_at = self._clock.monotonic()
        ledger, lives = self._plane.cluster.ledger, self._plane.heartbeats.lives
        has_changed, self._ledger_changes = ledger.changes != self._ledger_changes, ledger.changes
        for node, version in self._made.items():
            if lives(node) is not self._last_heard[node].lives or (has_changed and ledger.version(node) != version):
                self._mark(node)

    def _holding(self) -> Iterable[str]:
        """The nodes on which pods hold something. They may be gone."""
        return dict.fromkeys(entry.node for entry in self._plane.cluster.ledger.all())

    def _mark(self, node: str) -> None:
        self._marked[node] = None
        self._wake.set()

    def _heard(self, node: str) -> None:
        if node in self._made and self._is_news(node):  # a Lease may outlive its Node
            self._mark(node)

    def _is_news(self, node: str) -> bool:
        """Whether what we took over from an agent is to be taken over again."""
        last = self._last_heard.get(node)
        if last is None or self._plane.heartbeats.lives(node) is not last.lives:
            return True
        return self._clock.monotonic() - last.at >= RENEWAL_SECONDS

    async def _make_marked(self) -> None:
        stretches = Stretches(self._clock, _STRETCH_SECONDS)
        while self._marked:
            node = next(iter(self._marked))
            del self._marked[node]
            try:
                self._make(node)
            except Exception:  # decisions do not end with a view of them
                _log.exception("cannot show a node and its pods; this is a bug", node=node)
            await stretches.pause_if_due()

    def _make(self, name: str) -> None:
        """Make everything on a node again."""
        heard, health = self._listen(name)
        node, cards = self._plane.nodes.get(name), self._plane.cluster.cards(name)
        has_cards = node is not None and bool(cards.gpus)
        if node is not None and has_cards:
            taken = self._plane.cluster.ledger.used(name)
            self._put(GPU_INFOS, node_object(node, cards, taken, heard.load, health))
        elif self._store.get(GPU_INFOS.collection, ("", name)) is not None:
            self._store.remove(GPU_INFOS.collection, ("", name))
        if self._make_pods(name, heard.load) or has_cards:
            self._made[name], self._last_heard[name] = self._plane.cluster.ledger.version(name), heard
        else:
            self._made.pop(name, None)
            self._last_heard.pop(name, None)

    def _listen(self, node: str) -> tuple[_Heard, Health]:
        """What the agent says. News of nothing but times and use wait for their turn."""
        stored, last = self._store.get(GPU_INFOS.collection, ("", node)), self._last_heard.get(node)
        lease, lives = self._plane.heartbeats.leases.get(f"{NODE_LEASES}/{node}"), self._plane.heartbeats.lives(node)
        if last is not None and not self._is_news(node):
            heard = last
        else:
            sample = self._plane.heartbeats.samples.get(node) if lives else None
            seen = (lease.spec.renew_time or "") if lease else ""
            heard = _Heard(lives, seen, sample.load if sample else None, self._clock.monotonic())
        if last is None or stored is None:
            since = (lease.spec.acquire_time or "") if lease else ""
        elif last.lives is lives:
            since = stored.obj["status"].get("last_transition_time", "")
        else:
            since = self._now()
        return heard, Health(lives, heard.seen, since)

    def _make_pods(self, node: str, load: NodeLoad | None) -> bool:
        """Returns whether there are any."""
        cluster = self._plane.cluster
        entries, cards = cluster.ledger.entries(node), cluster.cards(node)
        used = pod_uses(load, entries, cards) if load else {}
        before, now = self._pods.pop(node, set()), set()
        for entry in entries:
            pod = self._plane.pods.with_uid(entry.uid)
            if entry.state is not State.BOUND or pod is None or pod.spec.node_name != node:
                continue
            spec = pod_spec(pod, entry, cards)
            if not spec["containers_device"]:
                continue  # it is not known yet which cards it has
            status = pod_status(self._changed(pod, spec), used.get(entry.uid))
            self._put_pod(pod, {"spec": spec, "status": status})
            now.add((pod.metadata.namespace, pod.metadata.name))
        for namespace, name in before - now:
            self._remove_pod(node, namespace, name)
        if now:
            self._pods[node] = now
        return bool(now)

    def _changed(self, pod: Pod, spec: Object) -> str:
        """When a pod's cards last changed. For pods that ran before this server started, that is when they started."""
        meta = pod.metadata
        stored = self._store.get(POD_RESOURCES.collection, ("", name_of(meta.namespace, meta.name)))
        if stored is not None and stored.obj["spec"] == spec:
            return str(stored.obj["status"]["last_changed_time"])
        if stored is None and not self.is_complete:
            return pod.status.start_time or meta.creation_timestamp or self._now()
        return self._now()

    def _put_pod(self, pod: Pod, content: Object) -> None:
        meta, shared = pod.metadata, pod_metadata(pod, content["spec"])
        own = {"name": name_of(meta.namespace, meta.name), **shared}
        self._put(POD_RESOURCES, {"metadata": own, **content})
        own = {"name": meta.name, "namespace": meta.namespace, **shared}
        self._put(POD_GPUS, {"metadata": own, **content})

    def _put(self, resource: QueryResource, obj: Object) -> None:
        """Store an object if it differs. One that was made anew under its name comes after the end of the old one."""
        stored = self._store.get(resource.collection, key_of(obj))
        if stored is not None and stored.obj["metadata"]["uid"] != obj["metadata"]["uid"]:
            self._store.remove(resource.collection, key_of(obj))
        self._store.put_if_changed(resource.collection, obj)

    def _remove_pod(self, node: str, namespace: str, name: str) -> None:
        """Unless a new pod of that name is on another node."""
        stored = self._store.get(POD_GPUS.collection, (namespace, name))
        if stored is not None and stored.obj["spec"]["node_name"] == node:
            self._store.remove(POD_RESOURCES.collection, ("", name_of(namespace, name)))
            self._store.remove(POD_GPUS.collection, (namespace, name))

    def _now(self) -> str:
        return rfc3339(self._clock.wall_ns())


def first_revision(clock: Clock, instance: int) -> int:
    """Later starts count from higher numbers. The low bits name the process."""
    return clock.wall_ns() // 1_000_000 * STEP + instance % STEP
