"""A GPU node: kubelet's device manager on real sockets, and the agent's device plugins beside it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import pytest

from aliquot.agent import cdi, checkpoint, rpc
from aliquot.agent.adopted_pods import AdoptedPods
from aliquot.agent.allocating import AllocateAnswers
from aliquot.agent.device_list import DeviceList, offered
from aliquot.agent.handover import PATIENCE, HandOver
from aliquot.agent.id_holders import IdHolders
from aliquot.agent.kubelet_records import CHECKPOINT, KubeletRecords
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_pods import NodePods
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.agent.plugin import AnswersAllocate, DevicePlugin
from aliquot.agent.podresources import PodResources
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.dialects import Dialect, Resource, standard_dialects
from aliquot.dialects.gpushare import IDX
from aliquot.embedded.api import resources
from aliquot.embedded.kubelet_devices import AdmissionError, DeviceManager
from aliquot.errors import Refused
from aliquot.kube import Client
from aliquot.model import NodeGpus, Placement, Pod, cut
from aliquot.model.kubernetes import PodStatus
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import make_cards, pod_manifest
from tests.fakes import SECONDS, FakeClock, ScriptedApi, until

DIALECT = standard_dialects()["gpushare"]


def runs(pod: Pod, container: str = "main") -> Pod:
    """kubelet has reported that a container of the pod runs."""
    status = {"phase": "Running", "containerStatuses": [{"name": container, "state": {"running": {}}}]}
    return msgspec.structs.replace(pod, status=msgspec.convert(status, PodStatus))


def ended(pod: Pod) -> Pod:
    """kubelet has reported that its containers have ended."""
    return msgspec.structs.replace(pod, status=PodStatus(phase="Succeeded"))


class AgentNode:
    """What the API server shows on the node is what the test has `show`n: the test controls the informer cache."""

    def __init__(
        self,
        folder: Path,
        api: ScriptedApi,
        client: Client,
        cards: NodeGpus | None = None,
        dialects: Sequence[Dialect] = (DIALECT,),
        *,
        with_cdi: bool = True,
        has_pod_resources: bool = True,
    ) -> None:
        self.with_cdi = with_cdi
        """Of an agent that is started from now on."""
        self._has_pod_resources = has_pod_resources
        self.cards = cards or make_cards()
        self.dialects = dialects
        self.api = api
        self.clock = FakeClock(skip=1.0)
        """Of the hand-over: short sleeps pass at once."""
        self.looks = FakeClock()
        """Of the plugins, which look for kubelet once a second."""
        self.kubelet = DeviceManager(folder / "device-plugins")
        self.cdi_folder = folder / "cdi"
        self.cdi = cdi.SpecFolder(self.cdi_folder)
        self.devices = NvidiaDevices(folder / "dev")
        self.runtime: Path | None = None
        """The container runtime that an agent asks which is started from now on."""
        self.shown: dict[str, Pod] = {}
        self.pods = NodePods(lambda: list(self.shown.values()))
        self._client = client
        self.serving: list[DevicePlugin] = []
        self._serving: list[asyncio.Task[None]] = []
        (folder / "dev").mkdir()
        for gpu in self.cards.gpus:
            (folder / "dev" / f"nvidia{gpu.minor}").touch()

    async def __aenter__(self) -> Self:
        self.cdi.prepare()
        await self.kubelet.__aenter__()
        await self.start_agent()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_agent()
        await self.kubelet.__aexit__()

    async def start_agent(self) -> None:
        self.serving = await self.plugins()
        self._serving = [asyncio.create_task(plugin.serve()) for plugin in self.serving]
        await self.registered()

    async def registered(self) -> None:
        names = [resource.name for dialect in self.dialects for resource, _ in offered(dialect, self.cards)]
        await until(
            lambda: all(self.kubelet.capacity().get(name) for name in names),
            "the plugins are registered",
            passing=self.looks,
        )

    async def restart_agent(self, cards: NodeGpus | None = None) -> None:
        """The agent forgets everything; the driver may show the cards in another way than before."""
        await self.stop_agent()
        await until(lambda: not any(self.kubelet.capacity().values()), "kubelet sees the plugin go")
        self.cards = cards or self.cards
        await self.start_agent()

    async def stop_agent(self) -> None:
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def plugins(self) -> list[DevicePlugin]:
        """Device plugins with a memory of their own, as after a start of the agent."""
        pod_resources = PodResources(self.kubelet.pod_resources, self.clock) if self._has_pod_resources else None
        self.holders = KubeletRecords(self.kubelet.folder, pod_resources, self.runtime)
        self.node_cards = cards = NodeCards(self.cards)
        self.hand_over = HandOver(
            self.dialects,
            standard_dialects(),
            self.holders,
            self.pods,
            cards,
            self.devices,
            self.cdi if self.with_cdi else None,
            self._client,
            self.clock,
        )
        self._adopted = AdoptedPods(self.hand_over.store, self.pods, standard_dialects(), self._client)
        await self.hand_over.store.recall(self.cdi, self.holders)
        allocating: AnswersAllocate = cdi.Promises()
        if not self.with_cdi:
            allocating = AllocateAnswers(
                self.dialects,
                standard_dialects(),
                self.holders,
                self.pods,
                cards,
                self.devices,
                self._client,
                self.clock,
            )
        holders = IdHolders(self.holders, self.hand_over.store, self.pods, cards)
        return [
            DevicePlugin(
                DeviceList(dialect, resource, cards, holders),
                self.kubelet.folder,
                allocating,
                self.hand_over,
                self.looks,
            )
            for dialect in self.dialects
            for resource, _ in offered(dialect, self.cards)
        ]

    # -- pods

    def make(self, name: str = "p", gpu_mem: Any = 3, *, card: int | Sequence[int] | None = 0, **fields: Any) -> Pod:
        """A bound pod, placed on a card, on several or, with None, not placed at all; not shown yet."""
        manifest = pod_manifest(name, gpu_mem, node=self.cards.node, **fields)
        manifest["metadata"].setdefault("annotations", {})
        created = self.api.registry.create(resources.PODS, "default", manifest)
        pod = msgspec.convert(created.obj, Pod)
        return pod if card is None else self.placed(pod, *([card] if isinstance(card, int) else card))

    def placed(self, pod: Pod, *cards: int, **forged: Any) -> Pod:
        """The same pod with our record on it, or with one that names other values for the cards."""
        (dialect,) = (dialect for dialect in self.dialects if dialect.speaks(pod))
        gpus = [self.cards.by_index[card] for card in cards]
        slices = {
            c.name: tuple(replace(cut(c.part, gpu, self.cards.unit_mib), **forged) for gpu in gpus)
            for c in dialect.demand(pod).containers
        }
        record = write_placement(Placement(self.cards.node, dialect.name, slices))
        return self.annotated(pod, **{PLACEMENT: record, IDX: ",".join(map(str, cards))})

    def annotated(self, pod: Pod, **annotations: str) -> Pod:
        def change(obj: dict[str, Any]) -> dict[str, Any]:
            merged = {**obj["metadata"].get("annotations", {}), **annotations}
            return {**obj, "metadata": {**obj["metadata"], "annotations": merged}}

        rewritten = self.api.registry.rewrite(resources.PODS, "default", pod.metadata.name, change)
        return msgspec.convert(rewritten.obj, Pod)

    def show(self, *pods: Pod) -> None:
        """The API server shows these now."""
        for pod in pods:
            self.shown[pod.metadata.uid] = pod
        self.pods.notify()

    async def admitted(self, *args: Any, **fields: Any) -> Pod:
        """A pod that is shown and that kubelet has admitted."""
        pod = self.make(*args, **fields)
        self.show(pod)
        await self.admit(pod)
        return pod

    async def admit(self, *pods: Pod) -> None:
        """kubelet admits these pods."""
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(self.kubelet.admit(pod) for pod in pods))

    async def not_admitted(self, pod: Pod) -> str:
        """kubelet tries to admit a pod, however long it takes; returns why that failed."""
        admitting = asyncio.create_task(self.kubelet.admit(pod))
        while not admitting.done():
            await until(lambda: admitting.done() or self.clock.sleeping, "kubelet has an answer, or the agent waits")
            await self.clock.move(1)
        with pytest.raises(AdmissionError) as refusal:
            await admitting
        return str(refusal.value)

    def report(self, pod: Pod, phase: str, **status: Any) -> None:
        """kubelet reports the pod's status, and everybody sees it."""
        told = {"phase": phase, **status}
        rewritten = self.api.registry.rewrite(
            resources.PODS, "default", pod.metadata.name, lambda obj: {**obj, "status": told}
        )
        self.show(msgspec.convert(rewritten.obj, Pod))

    async def start(self, pod: Pod, container: str = "main") -> dict[str, str]:
        """kubelet starts a container; returns the environment that it gets."""
        environment, _ = await self.inside(pod, container)
        return environment

    async def inside(self, pod: Pod, container: str = "main") -> tuple[dict[str, str], list[str]]:
        """kubelet starts a container; returns its environment and the names of its device nodes."""
        answers = await self.kubelet.pre_start(pod, container)
        environment = {name: value for answer in answers for name, value in answer.envs.items()}
        nodes = [node.container_path for answer in answers for node in answer.devices]
        for edits in (self.edits(device.name) for answer in answers for device in answer.cdi_devices):
            environment |= dict(line.split("=", 1) for line in edits["env"])
            nodes += [node["path"] for node in edits["deviceNodes"]]
        return environment, [Path(node).name for node in nodes]

    async def pre_start(self, pod: Pod, resource: Resource, container: str = "main") -> None:
        """kubelet calls the plugin of one resource, and no other yet."""
        grants = checkpoint.read(self.kubelet.folder / CHECKPOINT, {resource.name})
        (ids,) = (grant.ids for grant in grants if (grant.pod_uid, grant.container) == (pod.metadata.uid, container))
        request = wire.PreStartContainerRequest(devices_ids=ids)
        async with rpc.channel(self.kubelet.folder / resource.socket) as channel:
            await rpc.call(channel, "/v1beta1.DevicePlugin/PreStartContainer", request, wire.PreStartContainerResponse)

    async def start_all(self, pod: Pod) -> dict[str, dict[str, str]]:
        return {container.name: await self.start(pod, container.name) for container, _ in pod.containers()}

    async def device_nodes(self, pod: Pod, container: str = "main") -> list[str]:
        """kubelet starts a container; returns the names of its device nodes."""
        _, nodes = await self.inside(pod, container)
        return nodes

    async def refusal(self, pod: Pod) -> str:
        """kubelet starts a container; returns why it gets nothing, though it was waited for."""
        starting = asyncio.create_task(self.start(pod))
        await until(lambda: self.clock.sleeping, "the hand-over waits")
        await self.clock.move(PATIENCE)
        with pytest.raises(Refused) as refusal:
            await starting
        return str(refusal.value)

    def edits(self, name: str) -> dict[str, Any]:
        (device,) = msgspec.json.decode(self._path(name).read_bytes())["devices"]
        edits: dict[str, Any] = device["containerEdits"]
        return edits

    def spec(self, pod: Pod, container: str = "main") -> Path:
        """Where the CDI spec of a container lies that asks for one resource."""
        (name,) = (
            name
            for grant in checkpoint.read(self.kubelet.folder / CHECKPOINT)
            if (grant.pod_uid, grant.container) == (pod.metadata.uid, container)
            for name in grant.promised
        )
        return self._path(name)

    def _path(self, name: str) -> Path:
        return self.cdi_folder / f"aliquot.io-gpu_{name.removeprefix('aliquot.io/gpu=')}.json"

    def delete_by_force(self, pod: Pod) -> None:
        """The API server shows the pod no more; kubelet has not heard of it yet."""
        del self.shown[pod.metadata.uid]
        self.pods.notify()

    async def record_adopted(self) -> None:
        await self._adopted.record_cards()

    async def tidy(self) -> None:
        await self.hand_over.tidy(self.cdi, self.holders)

    def patches(self) -> list[Any]:
        return [seen.body for seen in self.api.seen if seen.method == "PATCH"]
