"""A card that fails and returns: its pod keeps running, and a pod that waits for the card runs when it is back."""

import asyncio
from collections.abc import Callable
from random import Random

from aliquot.app.demo import overview
from aliquot.app.demo.cluster import DemoCluster
from aliquot.clock import Clock
from aliquot.dialects.protocol import sample
from aliquot.errors import AliquotError
from aliquot.kube import PODS
from aliquot.model import Gpu, Pod

_DIALECT = "gpushare"
_NAMESPACE = "default"
_UNITS = 16
"""More than a card of the other machines of the dialect has, so that its pods fit on one card only."""
_WHY = "XID 79, the card has fallen off the bus"
_PAUSE_SECONDS, _FAILED_SECONDS = 30.0, 20.0


class CardNotBack(AliquotError):
    """A card did not fail or return in time. The text says what was waited for."""


async def show(demo: DemoCluster, tell: Callable[[str], None], seconds: float) -> None:
    """Tell how the card of the only machine with one card fails and returns. Raises CardNotBack."""
    alone = (name for name, own in demo.machines.items() if _DIALECT in own.dialects and len(own.models) == 1)
    if (node := next(alone, None)) is not None:
        failure = _Failure(demo, node)
        try:
            await asyncio.wait_for(failure.show(tell), seconds)
        except TimeoutError:
            raise CardNotBack(f"{node}: not so after {seconds:g} s: {failure.waits_for}") from None


async def now_and_then(demo: DemoCluster, seed: int, clock: Clock) -> None:
    """Until cancelled, some card fails for a while, and then another one."""
    random = Random(seed)
    while True:
        await clock.sleep(_PAUSE_SECONDS)
        node = random.choice(list(demo.machines))
        card = random.choice([gpu for gpu in demo.gpus[node].read().gpus if not gpu.parent])
        demo.gpus[node].fail(card.uuid, _WHY)
        await clock.sleep(_FAILED_SECONDS)
        demo.gpus[node].recover(card.uuid)


class _Failure:
    def __init__(self, demo: DemoCluster, node: str) -> None:
        self.waits_for = ""
        self._demo = demo
        self._node = node
        self._resource = demo.dialects[_DIALECT].resource

    async def show(self, tell: Callable[[str], None]) -> None:
        uuid = self._card.uuid
        await self._create("steady")
        await self._until("steady runs", lambda: self._runs("steady"))
        self._demo.gpus[self._node].fail(uuid, _WHY)
        await self._until("kubelet offers nothing of it", lambda: not self._card.healthy and not self._offered())
        await self._create("patient")
        await self._until("patient waits", lambda: "nodes are available" in self._why("patient"))
        assert self._runs("steady"), "nobody ends the pods of a card that fails"
        tell(f"Card {self._card.index} of {self._node} fails ({_WHY}).")
        tell(f"  Pod steady keeps running on it.\n  Pod patient waits: {self._why('patient')}")
        self._demo.gpus[self._node].recover(uuid)
        await self._until("patient runs", lambda: self._runs("patient"))
        tell(f"Card {self._card.index} of {self._node} is back.\n  Pod patient runs on it, next to pod steady.")
        for name in ("steady", "patient"):
            await self._demo.client.delete(PODS, name, _NAMESPACE)

    @property
    def _card(self) -> Gpu:
        (card,) = self._demo.plane.cluster.cards(self._node).gpus
        return card

    def _offered(self) -> int:
        node = self._demo.plane.nodes.get(self._node)
        return int((node.status.allocatable or {}).get(self._resource, 0)) if node else 0

    def _pod(self, name: str) -> Pod | None:
        return self._demo.plane.pods.get(f"{_NAMESPACE}/{name}")

    def _runs(self, name: str) -> bool:
        pod = self._pod(name)
        return pod is not None and pod.status.phase == "Running" and pod.spec.node_name == self._node

    def _why(self, name: str) -> str:
        pod = self._pod(name)
        return overview.why(pod) if pod is not None else ""

    async def _create(self, name: str) -> None:
        await self._demo.client.create(PODS, sample(name, {self._resource: str(_UNITS)}), _NAMESPACE)

    async def _until(self, what: str, condition: Callable[[], bool]) -> None:
        self.waits_for = what
        await self._demo.until(condition)
