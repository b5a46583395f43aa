"""The pods of this node as the informer cache has them, and a way to wait for the next change."""

import asyncio
from collections.abc import Callable

from aliquot.clock import Clock, came
from aliquot.model import Pod


class NodePods:
    def __init__(self, all_pods: Callable[[], list[Pod]]) -> None:
        self._all = all_pods
        self._changed = asyncio.Event()

    def all(self) -> list[Pod]:
        return self._all()

    def by_uid(self, uid: str) -> Pod | None:
        return next((pod for pod in self._all() if pod.metadata.uid == uid), None)

    def notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, seconds: float, clock: Clock) -> bool:
        """Wait for the next change for at most `seconds`. Returns whether there was one."""
        return await came(self._changed, seconds, clock)
