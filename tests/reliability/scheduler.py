"""As much of kube-scheduler as an extender sees: filter, choose, bind, and back to the queue on any failure.

It asks any replica, as a Service does, and believes nothing but the API server on whether a pod is bound.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp

from aliquot.kube import NODES, PODS, Access, Client, Informer
from aliquot.model import Node, Pod

_TIME_OUT = aiohttp.ClientTimeout(total=5.0)
"""kube-scheduler's own for an extender."""
_AT_ONCE = 8
_PAUSE = 0.1


class Scheduler:
    """`accepted` are the moments at which a bind call was answered without an Error, by pod."""

    def __init__(self, access: Access, urls: Sequence[str], *, seed: int = 0) -> None:
        self._access = access
        self.urls = list(urls)
        """Whom it asks; as a Service does, a test takes out who does not answer."""
        self._random = random.Random(seed)
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._bound: set[str] = set()
        self._changed = asyncio.Event()
        self.accepted: dict[str, float] = {}
        self.answers: list[str] = []
        """Every Error that a call came back with."""

    async def __aenter__(self) -> Self:
        self._client = Client(self._access)
        self._session = aiohttp.ClientSession(timeout=_TIME_OUT)
        self._pods: Informer[Pod] = Informer(self._client, PODS, self._on_pod)
        self._nodes: Informer[Node] = Informer(self._client, NODES, lambda _, __: None)
        self._tasks: list[asyncio.Task[None]] = [asyncio.create_task(self._pods.run())]
        self._tasks.append(asyncio.create_task(self._nodes.run()))
        await self._nodes.synced.wait()
        self._tasks += [asyncio.create_task(self._work()) for _ in range(_AT_ONCE)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()
        await self._client.close()

    @property
    def bound(self) -> int:
        """How many pods the API server shows on a node."""
        return len(self._bound)

    def accepted_in(self, epochs: Mapping[str, int], later_than: int) -> float | None:
        """When a Binding of a later term was first accepted, if one was; `epochs` are those of the pods."""
        later = (moment for name, moment in self.accepted.items() if epochs.get(name, 0) > later_than)
        return min(later, default=None)

    async def until_bound(self, count: int, seconds: float) -> None:
        """Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while self.bound < count:
                self._changed.clear()
                await self._changed.wait()

    def _on_pod(self, _: Pod | None, new: Pod | None) -> None:
        if new is None:
            return
        if new.spec.node_name:
            self._bound.add(new.key)
            self._changed.set()
        elif new.key not in self._queued:
            self._queued.add(new.key)
            self._queue.put_nowait(new.key)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            pod = self._pods.get(key)
            if pod is None or pod.spec.node_name:
                continue
            if not await self._schedule(pod):
                await asyncio.sleep(_PAUSE)
            self._queue.put_nowait(key)  # looked at again: whether it is bound, only the API server knows

    async def _schedule(self, pod: Pod) -> bool:
        try:
            nodes = await self._filter(pod)
            return bool(nodes) and await self._bind(pod, self._random.choice(nodes))
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def _filter(self, pod: Pod) -> list[str]:
        names = sorted(node.key for node in self._nodes.all())
        answer = await self._call("filter", {"Pod": _manifest(pod), "NodeNames": names})
        return list(answer.get("NodeNames") or ())

    async def _bind(self, pod: Pod, node: str) -> bool:
        meta = pod.metadata
        asked = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}
        answer = await self._call("bind", asked)
        if answer.get("Error"):
            return False
        self.accepted.setdefault(pod.key, time.monotonic())
        return True

    async def _call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post(f"{self._random.choice(self.urls)}/{verb}", json=body) as response:
            answer: dict[str, Any] = await response.json(content_type=None)
        if answer.get("Error"):
            self.answers.append(answer["Error"])
        return answer


def _manifest(pod: Pod) -> dict[str, Any]:
    meta = pod.metadata
    limits = [{"name": own.name, "resources": {"limits": dict(own.limits)}} for own, _ in pod.containers()]
    return {
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "spec": {"containers": limits},
    }
