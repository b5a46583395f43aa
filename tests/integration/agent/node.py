"""A GPU node: kubelet's device manager on real sockets, and the agent's device plug-in beside it."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import pytest

from aliquot.agent import cdi
from aliquot.agent.handover import PATIENCE, HandOver, Pods
from aliquot.agent.holders import Holders
from aliquot.agent.plugin import DevicePlugin
from aliquot.agent.podresources import PodResources
from aliquot.dialects import standard_dialects
from aliquot.dialects.gpushare import IDX
from aliquot.embedded.api import resources
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.errors import Refused
from aliquot.kube import Client
from aliquot.model import NodeGpus, Placement, Pod, cut
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import make_cards, pod_manifest
from tests.fakes import FakeClock, ScriptedApi, until

DIALECT = standard_dialects()["gpushare"]


class AgentNode:
    """What the API server shows on the node is what the test has `show`n: the mirror is in its hand."""

    def __init__(self, folder: Path, api: ScriptedApi, client: Client, cards: NodeGpus | None = None) -> None:
        self.cards = cards or make_cards()
        self.api = api
        self.clock = FakeClock(skip=1.0)
        """Of the hand-over: short sleeps pass at once."""
        self.looks = FakeClock()
        """Of the plug-in, which looks for kubelet once a second."""
        self.kubelet = DeviceManager(folder / "device-plugins")
        self.cdi_folder = folder / "cdi"
        self.cdi = cdi.Folder(self.cdi_folder, folder / "dev")
        self.shown: dict[str, Pod] = {}
        self.pods = Pods(lambda: list(self.shown.values()))
        self._client = client
        self._serving: asyncio.Task[None] | None = None
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
        self._serving = asyncio.create_task(self.plugin().serve())
        await self.registered()

    async def registered(self) -> None:
        await until(lambda: any(self.kubelet.capacity().values()), "the plug-in is registered", passing=self.looks)

    async def restart_agent(self, cards: NodeGpus | None = None) -> None:
        """The agent forgets everything; the driver may show the cards in another way than before."""
        await self.stop_agent()
        await until(lambda: not any(self.kubelet.capacity().values()), "kubelet sees the plug-in go")
        self.cards = cards or self.cards
        await self.start_agent()

    async def stop_agent(self) -> None:
        assert self._serving is not None
        self._serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving

    def plugin(self) -> DevicePlugin:
        """A device plug-in with a memory of its own, as after a start of the agent."""
        holders = Holders(self.kubelet.folder, PodResources(self.kubelet.pod_resources, self.clock))
        self.hand_over = HandOver(
            DIALECT, standard_dialects(), holders, self.pods, self.cards, self.cdi, self._client, self.clock
        )
        return DevicePlugin(DIALECT, self.kubelet.folder, self.cards, self.hand_over, self.looks)

    # -- pods

    def make(self, name: str = "p", gpu_mem: Any = 3, *, card: int | None = 0, **fields: Any) -> Pod:
        """A bound pod, placed on a card or, with None, not placed at all; not shown yet."""
        manifest = pod_manifest(name, gpu_mem, node=self.cards.node, **fields)
        manifest["metadata"].setdefault("annotations", {})
        created = self.api.registry.create(resources.PODS, "default", manifest)
        pod = msgspec.convert(created.obj, Pod)
        return pod if card is None else self.placed(pod, card)

    def placed(self, pod: Pod, card: int, **forged: Any) -> Pod:
        """The same pod with our record on it, or with one that names other values for the card."""
        gpu = self.cards.by_index[card]
        slices = {
            c.name: (replace(cut(c.part, gpu, self.cards.unit_mib), **forged),) for c in DIALECT.demand(pod).containers
        }
        record = write_placement(Placement(self.cards.node, DIALECT.name, slices))
        return self.annotated(pod, **{PLACEMENT: record, IDX: str(card)})

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
        self.pods.tell()

    async def admitted(self, *args: Any, **fields: Any) -> Pod:
        """A pod that is shown and that kubelet has admitted."""
        pod = self.make(*args, **fields)
        self.show(pod)
        await self.kubelet.admit(pod)
        return pod

    async def start(self, pod: Pod, container: str = "main") -> dict[str, str]:
        """kubelet starts a container; returns the environment that its CDI names give it."""
        names = await self.kubelet.pre_start(pod, container)
        return self.environment(*names)

    async def start_all(self, pod: Pod) -> dict[str, dict[str, str]]:
        return {container.name: await self.start(pod, container.name) for container, _ in pod.containers()}

    async def device_nodes(self, pod: Pod, container: str = "main") -> list[str]:
        """kubelet starts a container; returns the names of its device nodes."""
        names = await self.kubelet.pre_start(pod, container)
        return [Path(found["path"]).name for name in names for found in self.edits(name)["deviceNodes"]]

    async def refusal(self, pod: Pod) -> str:
        """kubelet starts a container; returns why it gets nothing, though it was waited for."""
        starting = asyncio.create_task(self.start(pod))
        await until(lambda: self.clock.sleeping, "the hand-over waits")
        await self.clock.move(PATIENCE)
        with pytest.raises(Refused) as refusal:
            await starting
        return str(refusal.value)

    def environment(self, *names: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in names:
            found |= dict(line.split("=", 1) for line in self.edits(name)["env"])
        return found

    def edits(self, name: str) -> dict[str, Any]:
        path = self.cdi_folder / f"aliquot.io-gpu_{name.removeprefix('aliquot.io/gpu=')}.json"
        (device,) = msgspec.json.decode(path.read_bytes())["devices"]
        edits: dict[str, Any] = device["containerEdits"]
        return edits

    def patches(self) -> list[Any]:
        return [seen.body for seen in self.api.seen if seen.method == "PATCH"]
