"""The kubelet of a hollow node: admits pods and runs their containers by script."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from aliquot.agent.usage import Part
from aliquot.clock import Clock, rfc3339
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.embedded.kubelet_devices import AdmissionError
from aliquot.embedded.nodes import objects
from aliquot.embedded.nodes.devices import Devices, Inside
from aliquot.embedded.nodes.scripts import BadScript, Script, script_of
from aliquot.embedded.programs import container_id, usual_percent
from aliquot.errors import BadQuantity, Refused
from aliquot.kube import EVENTS, PODS, Client, KubeError, NotFound, event_recorder
from aliquot.model import Life, Pod

_log = structlog.get_logger()
_RETRY_SECONDS = 1.0
_REFUSED = "CreateContainerConfigError"


class Kubelet:
    """Gets every change of its node's pods. `inside` is what each container got; `uses` is the percentage of its cards'
    time that each running pod uses."""

    def __init__(self, devices: Devices, gpus: SimulatedGpus, client: Client, clock: Clock) -> None:
        self.inside: dict[tuple[str, str], Inside] = {}
        self.uses: dict[str, int] = {}
        self._devices = devices
        self._gpus = gpus
        self._client = client
        self._clock = clock
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}

    def see(self, old: Pod | None, new: Pod | None, tasks: asyncio.TaskGroup) -> None:
        if new is None:
            assert old is not None, "an informer event has an old or a new object"
            self._stop(old.metadata.uid)
        elif new.metadata.deletion_timestamp:
            if new.metadata.uid not in self._ending:
                self._stop(new.metadata.uid)
                self._ending[new.metadata.uid] = tasks.create_task(self._finish(new))
        elif new.metadata.uid not in self._running and not new.ended:
            self._running[new.metadata.uid] = tasks.create_task(self._run(new))
        self._devices.see_pods()

    def _stop(self, uid: str) -> None:
        for tasks in (self._running, self._ending):
            if uid in tasks:
                tasks.pop(uid).cancel()
                self._let_go(uid)
        for key in [key for key in self.inside if key[0] == uid]:
            del self.inside[key]

    def _let_go(self, uid: str) -> None:
        self.uses.pop(uid, None)
        self._gpus.programs.end(uid)
        self._devices.release(uid)

    # -- a pod's life

    async def _run(self, pod: Pod) -> None:
        try:
            script = script_of(pod)
            await self._devices.admit(pod)
        except BadScript as error:
            await self._fail(pod, "BadScript", str(error))
        except (AdmissionError, BadQuantity) as error:
            await self._fail(pod, "UnexpectedAdmissionError", str(error))
        else:
            await self._start_containers(pod)
            self._compute(pod, script)
            await self._play(pod, script)

    def parts(self) -> Iterator[Part]:
        """What containers have been given of the cards."""
        for (uid, name), inside in self.inside.items():
            yield from (Part(uid, name, part.uuid, part.cores, part.mib) for part in inside.parts)

    def _compute(self, pod: Pod, script: Script) -> None:
        """Start the programs of a pod's containers on their cards."""
        uid = pod.metadata.uid
        inside = {name: inside.parts for (owner, name), inside in self.inside.items() if owner == uid}
        parts = [part for own in inside.values() for part in own]
        percent = usual_percent(pod, parts, self._gpus.mib) if script.uses is None else script.uses
        self.uses[uid] = percent
        users = [
            container.name for container, life in pod.containers() if life is not Life.INIT and inside[container.name]
        ]
        for name in users:
            self._gpus.programs.start(pod, name, inside[name], percent // len(users))

    async def _fail(self, pod: Pod, reason: str, message: str) -> None:
        self._let_go(pod.metadata.uid)
        await self._report(pod, objects.pod_status("Failed", [], self._now(), reason=reason, message=message))
        await self._tell(pod, reason, message)

    async def _start_containers(self, pod: Pod) -> None:
        creating = [objects.waiting(container.name, "ContainerCreating") for container in pod.spec.containers]
        await self._report(pod, {**objects.pod_status("Pending", creating, self._now()), "startTime": self._now()})
        started: list[dict[str, Any]] = []
        for container, life in pod.containers():
            await self._start(pod, container.name, started)
            if life is not Life.INIT:
                own_id = container_id(pod.metadata.uid, container.name)
                started.append(objects.running(container.name, own_id, self._now()))
        await self._report(pod, objects.pod_status("Running", started, self._now()))
        await self._tell(pod, "Started", f"Started {_containers(len(started))}", kind="Normal")

    async def _start(self, pod: Pod, container: str, before: list[dict[str, Any]]) -> None:
        """Start a container, with retries. The pod's status shows why it does not start."""
        shown = ""
        while True:
            try:
                self.inside[pod.metadata.uid, container] = await self._devices.start(pod, container)
                return
            except Refused as refusal:
                if str(refusal) != shown:
                    shown = str(refusal)
                    statuses = [*before, objects.waiting(container, _REFUSED, shown)]
                    await self._report(pod, objects.pod_status("Pending", statuses, self._now()))
                    await self._tell(pod, "Failed", f"Error: {shown}")
            await self._clock.sleep(_RETRY_SECONDS)

    async def _play(self, pod: Pod, script: Script) -> None:
        if script.seconds is None:
            return
        since = self._now()
        await self._clock.sleep(script.seconds)
        self._let_go(pod.metadata.uid)  # before the status is written, so that the next pod finds the ids free
        names = [container.name for container, life in pod.containers() if life is not Life.INIT]
        ended = [objects.terminated(name, script.exit_code, since, self._now()) for name in names]
        phase = "Failed" if script.exit_code else "Succeeded"
        await self._report(pod, objects.pod_status(phase, ended, self._now()))
        reason, kind = ("Failed", "Warning") if script.exit_code else ("Completed", "Normal")
        await self._tell(pod, reason, f"{_containers(len(ended))} ended with exit code {script.exit_code}", kind=kind)

    async def _finish(self, pod: Pod) -> None:
        """Let the API server drop the pod, whose containers have ended. Cancelled when the pod is gone."""
        meta = pod.metadata
        while True:
            try:
                await self._client.delete(PODS, meta.name, meta.namespace, grace=0, uid=meta.uid)
            except NotFound:
                return
            except KubeError as error:
                _log.warning("cannot finish a pod, trying again", pod=pod.key, error=str(error))
                await self._clock.sleep(_RETRY_SECONDS)
            else:
                return

    # -- reporting

    async def _report(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Write a pod's status, with retries. Cancelled when the pod is gone."""
        meta = pod.metadata
        while True:
            try:
                await self._client.patch(
                    PODS,
                    meta.name,
                    {"status": status},
                    namespace=meta.namespace,
                    part="status",
                    merge_lists=True,
                    uid=meta.uid,
                )
            except NotFound:
                return
            except KubeError as error:
                _log.warning("cannot report a pod's status, trying again", pod=pod.key, error=str(error))
                await self._clock.sleep(_RETRY_SECONDS)
            else:
                return

    async def _tell(self, pod: Pod, reason: str, message: str, kind: str = "Warning") -> None:
        body = event_recorder.about(
            pod,
            kind=kind,
            reason=reason,
            message=message,
            component="hollow-kubelet",
            wall_ns=self._clock.wall_ns(),
        )
        try:
            await self._client.create(EVENTS, body, pod.metadata.namespace)
        except KubeError as error:
            _log.warning("cannot write an event", pod=pod.key, error=str(error))

    def _now(self) -> str:
        return rfc3339(self._clock.wall_ns())


def _containers(count: int) -> str:
    return f"{count} container{'s' if count > 1 else ''}"
