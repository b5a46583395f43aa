"""What all parts of a history share."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from aliquot.apiserver.eventlog import EventType, StoreEvent
from aliquot.apiserver.statuses import StatusError
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from tests.reliability.history.clocks import MovedClock
from tests.reliability.history.figures import WROTE, Figures, Violation
from tests.reliability.history.gate import Gate
from tests.reliability.history.machines import Machine
from tests.reliability.history.setups import Setup
from tests.reliability.history.story import Story
from tests.reliability.history.witness import Pod, Witness, name_of
from tests.reliability.servers import Server

OBSERVER = "observer"
_ASKING = "accessreviews"
"""Questions that Kubernetes' API takes as writes."""
_LOG_LINES = 12


@dataclass
class Replica:
    server: Server
    clock: MovedClock
    stopped_at: float | None = None
    """When it was stopped, if it is."""
    is_ending: bool = False
    """It was told to end, or ended at the fault point that it was started with."""
    fault: str = ""
    """The fault point that it was started with."""

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def runs(self) -> bool:
        process = self.server.process
        return process is not None and process.poll() is None and self.stopped_at is None and not self.is_ending


@dataclass
class World:
    setup: Setup
    chance: Random
    story: Story
    figures: Figures
    gate: Gate
    cluster: EmbeddedCluster
    machines: dict[str, Machine]
    replicas: list[Replica] = field(default_factory=list)
    observers: list[Replica] = field(default_factory=list)
    is_calm: bool = False
    """No trouble is made and nobody misbehaves."""
    tide: float = 1.0
    """How many pods there shall be, in pods per card: rooms fill and empty again."""
    busy: Counter[str] = field(default_factory=Counter)
    """How many schedulers are at each pod, by UID."""
    is_paused: bool = False
    """Nobody does anything."""
    violated: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.witness = Witness(self.machines, self.story, self.violate)
        self.cluster.store.on_change(self._on_write)
        self.gate.on_write = self._refuse_observers
        for machine in self.machines.values():
            self.cluster.registry.create(resources.NODES, "", machine.manifest())

    def _on_write(self, collection: str, event: StoreEvent) -> None:
        if collection == resources.PODS.collection:
            self.witness.see(event.stored.obj, is_gone=event.change is EventType.DELETED)
        elif collection == resources.LEASES.collection:
            held, before = _holder(event.stored.obj), _holder(event.previous.obj) if event.previous else ""
            if held != before:
                self.story.tell(f"the Lease is held by {held or 'nobody'}")

    def _refuse_observers(self, name: str, what: str) -> None:
        if name.startswith(OBSERVER) and _ASKING not in what:
            self.violate(WROTE, f"{name}: {what}", ())

    def violate(self, what: str, text: str, names: tuple[str, ...]) -> None:
        lines = [*self.story.excerpt(*names), *self._log_lines(names)]
        self.figures.violations.append(Violation(what, text, self.story.now, lines))
        self.violated.set()

    def _log_lines(self, names: tuple[str, ...]) -> list[str]:
        """What the servers said of these pods last."""
        words = [name.partition("[")[0] for name in names if "/" in name]
        found = []
        for replica in self.replicas:
            log: Path = replica.server.log
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            about = [line for line in lines if not words or any(word in line for word in words)]
            found += [f"{replica.name}: {line}" for line in about[-_LOG_LINES:]]
        return found

    # -- what others than Aliquot write

    def write_node(self, machine: Machine) -> None:
        if not machine.is_there:
            return
        wanted = machine.manifest()

        def change(node: dict[str, Any]) -> dict[str, Any]:
            metadata = {**node["metadata"], "annotations": wanted["metadata"]["annotations"]}
            return {**node, "metadata": metadata, "spec": wanted["spec"]}

        self.cluster.registry.rewrite(resources.NODES, "", machine.name, change)

    def write_status(self, pod: Pod, annotations: dict[str, str] | None = None, **status: Any) -> None:
        """As kubelet does; the pod may be another one by now."""

        def change(now: dict[str, Any]) -> dict[str, Any]:
            if now["metadata"]["uid"] != pod["metadata"]["uid"]:
                return now
            kept = {**(now["metadata"].get("annotations") or {}), **(annotations or {})}
            return {**now, "metadata": {**now["metadata"], "annotations": kept}, "status": {**now["status"], **status}}

        meta = pod["metadata"]
        if meta["uid"] in self.witness.pods:
            self.cluster.registry.rewrite(resources.PODS, meta["namespace"], meta["name"], change)

    def delete_pod(self, pod: Pod, grace: int | None = None) -> None:
        meta = pod["metadata"]
        if meta["uid"] in self.witness.pods:
            self.cluster.registry.delete(
                resources.PODS, meta["namespace"], meta["name"], DeleteRequest(grace_seconds=grace, uid=meta["uid"])
            )

    def create_pod(self, manifest: dict[str, Any]) -> Pod | None:
        """None if there is one of this name."""
        try:
            stored = self.cluster.registry.create(resources.PODS, manifest["metadata"]["namespace"], manifest)
        except StatusError:
            return None
        self.figures.counts["pods"] += 1
        return stored.obj

    # -- how the servers are called

    async def call(
        self, session: aiohttp.ClientSession, replica: Replica, endpoint: str, path: str, body: object
    ) -> Any:
        """Raises aiohttp.ClientError, TimeoutError."""
        async with session.post(f"{replica.server.endpoint(endpoint)}{path}", json=body) as response:
            return await response.json(content_type=None)

    def tell(self, text: str, pod: Pod) -> None:
        self.story.tell(f"{name_of(pod)}: {text}", name_of(pod))


def _holder(lease: dict[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
