"""The pods of this node as our mirror has them, and a way to wait for the next change."""

import asyncio
from collections.abc import Callable

from aliquot.clock import Clock, came
from aliquot.model import Pod


class Pods:
    def __init__(self, all_pods: Callable[[], list[Pod]]) -> None:
        self._all = all_pods
        self._changed = asyncio.Event()

    def all(self) -> list[Pod]:
        return self._all()

    def by_uid(self, uid: str) -> Pod | None:
        return next((pod for pod in self._all() if pod.metadata.uid == uid), None)

    def tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self, seconds: float, clock: Clock) -> bool:
        """Wait for the next change, at most so long; returns whether there was one."""
        return await came(self._changed, seconds, clock)
