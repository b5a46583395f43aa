"""A control plane at work on an API server that the test holds in its hand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

from aliquot.apiserver.objects import Object, key_of
from aliquot.config.server_tree import ServerConfig
from aliquot.control import ClusterState, Committer, ControlPlane, Leadership
from aliquot.control.placing.transaction import PlacementTransactions
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.kube import PODS, Client, Informer
from aliquot.ledger import Entry
from aliquot.model import NodeGpus, Pod
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import FakeClock, ScriptedApi, held, until
from tests.settings import server_config


def patient(**settings: Any) -> ServerConfig:
    """The clock is a fake and the limits of calls are not: only a test that sets its own reaches them."""
    return server_config(**{"commit__budget": 20.0, "commit__look": 20.0, **settings})


class Commits:
    """What a server that is the only one commits, and how it settles what is unknown."""

    def __init__(self, client: Client, cluster: ClusterState, clock: FakeClock, **settings: Any) -> None:
        chosen = patient(lease__enabled=False, **settings)
        leadership = Leadership(client, clock, chosen, _nothing)
        transactions = PlacementTransactions(client, cluster, leadership, clock, chosen.commit)
        self.commit = Committer(client, cluster, transactions, leadership, chosen.commit).commit
        self.settle = transactions.settle


async def _nothing() -> None:
    pass


class Room:
    """`async with Room(...)` runs the control plane; leaving it is the end of that process."""

    def __init__(self, api: ScriptedApi, client: Client, clock: FakeClock) -> None:
        self.api = api
        self.client = client
        self.clock = clock
        self.plane = ControlPlane(client, clock, settings=patient(lease__enabled=False))
        self.commit = self.plane.committer.commit
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.plane.run())
        await self.in_sync()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._running is not None
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    def committer(self, client: Client | None = None, clock: FakeClock | None = None, **settings: Any) -> Commits:
        """Another committer on the same cluster state."""
        return Commits(client or self.client, self.plane.cluster, clock or self.clock, **settings)

    # -- what happens in the cluster

    async def add_node(self, cards: NodeGpus | None = None, **fields: Any) -> NodeGpus:
        shown = cards or make_cards()
        self.api.registry.create(resources.NODES, "", node_manifest(shown.node, shown, **fields))
        await self.in_sync()
        return shown

    async def add_plain_node(self, name: str, capacity: Mapping[str, str], **fields: Any) -> None:
        """A node without our agent: whatever an original's plugin left in its status."""
        self.api.registry.create(resources.NODES, "", node_manifest(name, capacity=capacity, **fields))
        await self.in_sync()

    async def change_node(self, cards: NodeGpus) -> None:
        annotations = node_manifest(cards.node, cards)["metadata"]["annotations"]
        self._rewrite(resources.NODES, "", cards.node, lambda node: _with_annotations(node, annotations))
        await self.in_sync()

    async def remove_node(self, name: str) -> None:
        self.api.registry.delete(resources.NODES, "", name, DeleteRequest())
        await self.in_sync()

    async def add_pod(self, *args: Any, **fields: Any) -> Pod:
        """A pod as our informer cache has it."""
        manifest = await self.put_pod(pod_manifest(*args, **fields))
        pod = self.plane.pods.with_uid(manifest["metadata"]["uid"])
        assert pod is not None
        return pod

    async def put_pod(self, manifest: Object) -> Object:
        """A pod that our informer cache has, as the API server shows it."""
        created = self.api.registry.create(resources.PODS, manifest["metadata"]["namespace"], manifest).obj
        await self.in_sync()
        return created

    async def annotate(self, pod: Pod, **annotations: str) -> None:
        """Somebody writes on a pod."""
        body = {"metadata": {"annotations": annotations}}
        await self.client.patch(PODS, pod.metadata.name, body, namespace=pod.metadata.namespace)
        await self.in_sync()

    async def report(self, pod: Pod, **status: Any) -> None:
        """kubelet's word on a pod."""
        await self.client.patch(
            PODS, pod.metadata.name, {"status": status}, namespace=pod.metadata.namespace, part="status"
        )
        await self.in_sync()

    async def delete_pod(self, pod: Pod, grace: int = 0) -> None:
        asked = DeleteRequest(grace_seconds=grace)
        self.api.registry.delete(resources.PODS, pod.metadata.namespace, pod.metadata.name, asked)
        await self.in_sync()

    @contextlib.asynccontextmanager
    async def late_informer(self) -> AsyncIterator[asyncio.Event]:
        """Our informer hears nothing of pods until the event is set."""
        await self.clock.move(1.0)  # a watch that was open for a while goes on at once when it is cut
        arrived, release = asyncio.Event(), asyncio.Event()
        self.api.script("GET", r"/pods\?.*watch=", held(arrived, release))
        self.api.cut_watches("pods")
        await until(arrived.is_set, "the watch is held back", passing=self.clock)
        try:
            yield release
        finally:
            release.set()

    async def in_sync(self) -> None:
        """Return when the control plane has seen everything that has happened."""
        await until(self._has_seen_all, "the control plane is in sync with the API server")

    # -- what can be seen

    def api_pod(self, pod: Pod) -> Object:
        return self.api.registry.get(resources.PODS, pod.metadata.namespace, pod.metadata.name).obj

    def used(self, node: str = "n1") -> dict[int, int]:
        """Units in use on each card, by index, as a buyer sees them: in the Fleet as in the ledger."""
        cluster = self.plane.cluster
        cards = cluster.cards(node)
        used = cluster.ledger.used(node)
        if cluster.fleet.column(node) is not None:
            assert cluster.fleet.shows(cards, used), "Fleet and ledger differ"
        return {gpu.index: used[gpu.uuid].mib // cards.unit_mib for gpu in cards.gpus if gpu.uuid in used}

    def entries(self, node: str = "n1") -> dict[str, Entry]:
        return {entry.uid: entry for entry in self.plane.cluster.ledger.entries(node)}

    def _has_seen_all(self) -> bool:
        pods, nodes = self.plane.pods, self.plane.nodes
        ready = pods.synced.is_set() and nodes.synced.is_set()
        return ready and self._matches(pods, "pods") and self._matches(nodes, "nodes")

    def _matches(self, informer: Informer[Any], collection: str) -> bool:
        seen = {(o.metadata.namespace, o.metadata.name): o.metadata.resource_version for o in informer.all()}
        return seen == {key_of(held.obj): str(held.revision) for held in self.api.store.snapshot(collection)}

    def _rewrite(self, resource: resources.WritableResource, namespace: str, name: str, change: Any) -> None:
        self.api.registry.rewrite(resource, namespace, name, change)


def _with_annotations(obj: Object, annotations: dict[str, str]) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
