"""A stand-in for kube-scheduler: makes pods, asks for nodes, and binds, one pod after another."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from aliquot.kube import PODS, Client
from bench.searching.pods import hard_pod, small_pod

_EACH_SECONDS = 1.0
_PROBE_SECONDS = 0.05
_LONGEST = aiohttp.ClientTimeout(total=60)


@dataclass
class Seen:
    """What happened in a while."""

    seconds: float = 0.0
    bound: int = 0
    hard_bound: int = 0
    hard_asked: int = 0
    probes: list[float] = field(default_factory=list)
    """Seconds until /healthz was answered."""

    @property
    def rate(self) -> float:
        return self.bound / self.seconds


class Scheduling:
    """`endpoint` is the URL of the server's native endpoint, `health` that of its port for health."""

    def __init__(
        self, client: Client, session: aiohttp.ClientSession, endpoint: str, health: str, nodes: Sequence[str]
    ):
        self._client, self._session = client, session
        self._endpoint, self._health = endpoint, health
        self._nodes = nodes
        self._numbers = itertools.count()

    async def watch(self, seconds: float, *, hard: bool, callers: int) -> Seen:
        """Small pods are bound as fast as it goes; with `hard`, a hard pod comes each second beside them."""
        seen, end = Seen(), time.monotonic() + seconds
        work = [self._small(seen, end) for _ in range(callers)]
        work += [self._probe(seen, end), *([self._hard(seen, end)] if hard else [])]
        began = time.monotonic()
        await asyncio.gather(*work)
        seen.seconds = time.monotonic() - began
        return seen

    async def _small(self, seen: Seen, end: float) -> None:
        while time.monotonic() < end:
            seen.bound += await self._schedule(small_pod(f"small-{next(self._numbers)}"))

    async def _hard(self, seen: Seen, end: float) -> None:
        """A call that takes longer than a second does not keep the next one waiting."""
        async with asyncio.TaskGroup() as sent:
            while time.monotonic() < end:
                sent.create_task(self._one_hard(seen))
                await asyncio.sleep(_EACH_SECONDS)

    async def _one_hard(self, seen: Seen) -> None:
        seen.hard_asked += 1
        seen.hard_bound += await self._schedule(hard_pod(f"hard-{next(self._numbers)}", "greedy"))

    async def _probe(self, seen: Seen, end: float) -> None:
        while time.monotonic() < end:
            began = time.monotonic()
            async with self._session.get(f"{self._health}/healthz", timeout=_LONGEST) as answer:
                assert answer.status == 200, await answer.text()
            seen.probes.append(time.monotonic() - began)
            await asyncio.sleep(_PROBE_SECONDS)

    async def _schedule(self, manifest: dict[str, Any]) -> bool:
        """Whether the pod was bound."""
        metadata = manifest["metadata"]
        pod = await self._client.create(PODS, manifest, metadata["namespace"])
        shown = {**manifest, "metadata": {**metadata, "uid": pod.metadata.uid}}
        passed = (await self._post("filter", {"Pod": shown, "NodeNames": self._nodes}))["NodeNames"]
        if not passed:
            return False
        call = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": pod.metadata.uid}
        return not (await self._post("bind", {**call, "Node": passed[0]}))["Error"]

    async def _post(self, verb: str, body: Any) -> Any:
        async with self._session.post(f"{self._endpoint}/aliquot/{verb}", json=body, timeout=_LONGEST) as answer:
            return await answer.json()
