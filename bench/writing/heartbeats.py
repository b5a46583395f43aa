"""Agents' heartbeats, in made-up time: when each of them renews its Lease."""

import asyncio
import heapq
from collections import Counter
from itertools import count
from typing import Any, cast

from aliquot.agent.heartbeat import Heartbeat
from aliquot.kube import Client


class MadeUpTime:
    """Passes only when everybody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return int(self.now * 1e9)

    async def sleep(self, seconds: float) -> None:
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleeping, (self.now + seconds, next(self._order), awake))
        await awake

    async def pass_until(self, end: float) -> None:
        while True:
            await asyncio.sleep(0)
            if self._sleeping[0][0] > end:
                return
            self.now, _, awake = heapq.heappop(self._sleeping)
            awake.set_result(None)


class CountedClient:
    """Answers every write, and counts them by second."""

    def __init__(self, time: MadeUpTime) -> None:
        self._time = time
        self.by_second: Counter[int] = Counter()

    async def patch(self, *_: Any, **__: Any) -> None:
        self.by_second[int(self._time.now)] += 1


async def writes_by_second(nodes: int, seconds: int) -> list[int]:
    """How many Leases were renewed in each second, in a cluster whose agents all started at once."""
    time = MadeUpTime()
    client = CountedClient(time)
    beats = (Heartbeat(cast(Client, client), f"n{number}", time).run() for number in range(nodes))
    tasks = [asyncio.create_task(beat) for beat in beats]
    await time.pass_until(float(seconds))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [client.by_second[second] for second in range(seconds)]
