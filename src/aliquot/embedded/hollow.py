"""A hollow GPU node: a Node object, and a kubelet that runs pods by saying so.

Its device manager speaks kubelet's real protocol, so the real agent serves it; only the containers are pretence: what a
container would find inside is read from its CDI specs and kept here for whoever wants to look.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

from aliquot.clock import Clock, SystemClock
from aliquot.embedded.kubelet_devices import AdmissionError, DeviceManager
from aliquot.errors import Refused
from aliquot.kube import EVENTS, NODES, PODS, Client, Informer, KubeError, NotFound, events
from aliquot.model import Life, Pod

_log = structlog.get_logger()
_RETRY_SECONDS = 1.0
_REFUSED = "CreateContainerConfigError"


class _Edits(msgspec.Struct):
    env: list[str] = []
    nodes: list[dict[str, str]] = msgspec.field(name="deviceNodes", default_factory=list)


class _Device(msgspec.Struct):
    name: str
    edits: _Edits = msgspec.field(name="containerEdits")


class _Spec(msgspec.Struct):
    kind: str
    devices: list[_Device]


@dataclass
class Inside:
    """What a container finds inside: variables and device paths."""

    environment: dict[str, str] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)


class HollowNode:
    """Use it as a context manager; `run` serves its pods until cancelled."""

    def __init__(
        self,
        name: str,
        client: Client,
        folder: Path,
        *,
        labels: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.devices = DeviceManager(folder / "device-plugins")
        self.cdi_folder = folder / "cdi"
        self.inside: dict[tuple[str, str], Inside] = {}
        self._client = client
        self._labels = dict(labels or {})
        self._clock = clock or SystemClock()
        self._pods: Informer[Pod] = Informer(
            client, PODS, self._on_pod, selector={"fieldSelector": f"spec.nodeName={name}"}
        )
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def __aenter__(self) -> "HollowNode":
        self.cdi_folder.mkdir(parents=True, exist_ok=True)
        await self.devices.__aenter__()
        await self._client.create(NODES, self._node())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.devices.__aexit__()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._pods.run())
            self._tasks.create_task(self._report_capacity())

    # -- the Node object

    def _node(self) -> dict[str, Any]:
        plain = {"cpu": "32", "memory": "128Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "HollowNode", "lastTransitionTime": _now()}
        addresses = {"InternalIP": "127.0.0.1", "Hostname": self.name}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": {"kubernetes.io/hostname": self.name, **self._labels}},
            "status": {
                "capacity": plain,
                "allocatable": plain,
                "conditions": [ready],
                "addresses": [{"type": kind, "address": address} for kind, address in addresses.items()],
                "nodeInfo": {
                    "kubeletVersion": "v1.37.0-hollow",
                    "osImage": "hollow",
                    "kernelVersion": "hollow",
                    "containerRuntimeVersion": "hollow://1",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                },
            },
        }

    async def _report_capacity(self) -> None:
        while True:
            await self.devices.changed.wait()
            self.devices.changed.clear()
            resources = {resource: str(count) for resource, count in self.devices.capacity().items()}
            body = {"status": {"capacity": resources, "allocatable": resources}}
            try:
                await self._client.patch(NODES, self.name, body, part="status")
            except KubeError as error:
                _log.warning("cannot report the node's capacity", node=self.name, error=str(error))
                await self._clock.sleep(_RETRY_SECONDS)
                self.devices.changed.set()

    # -- pods

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        assert self._tasks is not None, "the informer runs inside run()"
        if new is None:
            assert old is not None, "an informer tells of what was or what is"
            self._stop(old.metadata.uid)
        elif new.metadata.deletion_timestamp:
            self._stop(new.metadata.uid)
            self._tasks.create_task(self._finish(new))
        elif new.metadata.uid not in self._running and not new.ended:
            self._running[new.metadata.uid] = self._tasks.create_task(self._run_pod(new))

    def _stop(self, uid: str) -> None:
        task = self._running.pop(uid, None)
        if task is not None:
            task.cancel()
        self.devices.release(uid)
        for key in [key for key in self.inside if key[0] == uid]:
            del self.inside[key]

    async def _finish(self, pod: Pod) -> None:
        """The containers have ended: let the API server drop the pod."""
        try:
            await self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, grace=0)
        except NotFound:
            return
        except KubeError as error:
            _log.warning("cannot finish a pod", pod=pod.key, error=str(error))

    async def _run_pod(self, pod: Pod) -> None:
        try:
            await self.devices.admit(pod)
        except AdmissionError as error:
            await self._report(pod, "Failed", [], reason="UnexpectedAdmissionError", message=str(error))
            return
        statuses: list[dict[str, Any]] = []
        creating = [_waiting(container.name, "ContainerCreating") for container in pod.spec.containers]
        await self._report(pod, "Pending", creating)
        for container, life in pod.containers():
            await self._start(pod, container.name, statuses)
            if life is not Life.INIT:
                statuses.append(_running(container.name))
        await self._report(pod, "Running", statuses)

    async def _start(self, pod: Pod, container: str, before: list[dict[str, Any]]) -> None:
        """Start a container, as often as it takes; what stands in the way is shown in the pod's status."""
        shown = ""
        while True:
            try:
                names = await self.devices.pre_start(pod, container)
                self.inside[pod.metadata.uid, container] = self._inject(names)
                return
            except Refused as refusal:
                if str(refusal) != shown:
                    await self._report(pod, "Pending", [*before, _waiting(container, _REFUSED, str(refusal))])
                    await self._tell(pod, str(refusal))
                    shown = str(refusal)
            await self._clock.sleep(_RETRY_SECONDS)

    def _inject(self, names: list[str]) -> Inside:
        """What the container runtime does with CDI names. Raises Refused for one that no spec explains."""
        specs = [msgspec.json.decode(path.read_bytes(), type=_Spec) for path in self.cdi_folder.glob("*.json")]
        known = {f"{spec.kind}={device.name}": device.edits for spec in specs for device in spec.devices}
        inside = Inside()
        for name in names:
            if name not in known:
                raise Refused(f"CDI device injection failed: unresolvable CDI devices {name}")
            inside.environment |= dict(line.split("=", 1) for line in known[name].env)
            inside.devices += [node["path"] for node in known[name].nodes]
        return inside

    async def _tell(self, pod: Pod, message: str) -> None:
        body = events.about(
            pod,
            kind="Warning",
            reason="Failed",
            message=f"Error: {message}",
            component="hollow-kubelet",
            wall_ns=self._clock.wall_ns(),
        )
        try:
            await self._client.create(EVENTS, body, pod.metadata.namespace)
        except KubeError as error:
            _log.warning("cannot write an event", pod=pod.key, error=str(error))

    async def _report(
        self, pod: Pod, phase: str, statuses: list[dict[str, Any]], *, reason: str = "", message: str = ""
    ) -> None:
        ready = "True" if phase == "Running" else "False"
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": _now()}
        status: dict[str, Any] = {
            "phase": phase,
            "startTime": _now(),
            "hostIP": "127.0.0.1",
            "conditions": [condition],
            "containerStatuses": statuses,
        }
        if reason:
            status |= {"reason": reason, "message": message}
        try:
            await self._client.patch(
                PODS,
                pod.metadata.name,
                {"status": status},
                namespace=pod.metadata.namespace,
                part="status",
                merge_lists=True,
            )
        except KubeError as error:
            _log.warning("cannot report a pod's status", pod=pod.key, error=str(error))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _running(container: str) -> dict[str, Any]:
    state = {"running": {"startedAt": _now()}}
    return {"name": container, "ready": True, "started": True, "restartCount": 0, "state": state, "image": "hollow"}


def _waiting(container: str, reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"name": container, "ready": False, "started": False, "restartCount": 0, "state": state, "image": "hollow"}
