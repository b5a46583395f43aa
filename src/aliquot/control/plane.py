"""The control plane: follows the cluster, keeps the books, commits decisions."""

import asyncio
from collections.abc import Callable

import structlog

from aliquot.clock import Clock, SystemClock
from aliquot.control.books import Books
from aliquot.control.commit import Committer
from aliquot.control.telling import Teller
from aliquot.dialects import Dialects
from aliquot.kube import NODES, PODS, Client, Informer
from aliquot.model import Node, Pod

_log = structlog.get_logger()
_SETTLE_SECONDS = 1.0


class ControlPlane:
    """Everything that a door needs. `run` it as one task; it ends only by being cancelled."""

    def __init__(self, client: Client, clock: Clock | None = None, dialects: Dialects | None = None) -> None:
        self.client = client
        self.clock = clock or SystemClock()
        self.books = Books(dialects)
        self.committer = Committer(client, self.books, self.clock)
        self.teller = Teller(client, self.clock)
        self.nodes: Informer[Node] = Informer(client, NODES, self._on_node, clock=self.clock)
        self.pods: Informer[Pod] = Informer(client, PODS, self._on_pod, clock=self.clock)
        self._by_uid: dict[str, Pod] = {}
        self._on_nodes: dict[str, set[str]] = {}
        self._listeners: list[Callable[[], None]] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._settle())
            tasks.create_task(self.nodes.run())
            await self.nodes.synced.wait()
            # pods after nodes: where a pod is placed is read by the cards of its node
            tasks.create_task(self.pods.run())
            await self.pods.synced.wait()
            _log.info("in step with the API server", nodes=len(self.nodes.all()), pods=len(self.pods.all()))

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change of a pod or node that we see."""
        self._listeners.append(listener)

    def not_ready(self) -> list[str]:
        """Why answers cannot be trusted yet; empty when both mirrors are in step with the API server."""
        return [trouble for trouble in (self.nodes.trouble, self.pods.trouble) if trouble]

    def pod_by_uid(self, uid: str) -> Pod | None:
        return self._by_uid.get(uid)

    def pods_on(self, node: str) -> list[Pod]:
        return [self._by_uid[uid] for uid in self._on_nodes.get(node, ())]

    async def _settle(self) -> None:
        while True:
            await self.committer.settle()
            await self.clock.sleep(_SETTLE_SECONDS)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None, "an informer tells of what was or what is"
            self.books.lose_node(old.key)
        elif self.books.see_node(new):
            self._see_pods_of(new.key)
        self._tell()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None, "an informer tells of what was or what is"
            self._unlist(old)
            self.books.forget_pod(old.metadata.uid)
        else:
            if old is not None:
                self._unlist(old)
            self._by_uid[new.metadata.uid] = new
            self._on_nodes.setdefault(new.spec.node_name, set()).add(new.metadata.uid)
            self.books.see_pod(new)
        self._tell()

    def _unlist(self, pod: Pod) -> None:
        del self._by_uid[pod.metadata.uid]
        there = self._on_nodes[pod.spec.node_name]
        there.discard(pod.metadata.uid)
        if not there:
            del self._on_nodes[pod.spec.node_name]

    def _see_pods_of(self, node: str) -> None:
        """A node's cards came or changed: read its pods' placements again, by the cards it has now."""
        for pod in self.pods_on(node):
            self.books.see_pod(pod)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
