"""Whatever goes wrong in a cluster, one after another and at once; here, the API server and the way to it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from aliquot.embedded.api.faults import Faults
from tests.reliability.history.node_troubles import NodeTroubles
from tests.reliability.history.schedule import Schedule
from tests.reliability.history.server_troubles import ServerTroubles
from tests.reliability.history.world import World

_LISTS = frozenset({"list pods", "list nodes"})
_LOOK_EACH = 0.1


class Troubles:
    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance
        self._schedule = Schedule()
        self._servers = ServerTroubles(world, self._schedule, self._bad_lists)
        self._nodes = NodeTroubles(world)
        self._kinds: Mapping[str, Callable[[], Awaitable[bool]]] = {
            **self._servers.kinds,
            **self._nodes.kinds,
            "outage": self._outage,
            "hang": self._hang,
            "partition": self._partition,
            "bad lists": self._bad_lists,
            "weather": self._weather,
            "late writes": self._late_writes,
            "drop watches": self._drop_watches,
        }

    async def run(self, seconds: float) -> None:
        """Trouble for so long; what lasts stays until it is due or `settle` is called."""
        end = time.monotonic() + seconds
        weights = self._world.setup.troubles
        while time.monotonic() < end:
            kind = self._chance.choices(list(weights), list(weights.values()))[0]
            if await self._kinds[kind]():
                self._world.figures.counts[f"trouble: {kind}"] += 1
            await self._rest(self._chance.expovariate(1 / self._world.setup.trouble_each))

    async def settle(self) -> None:
        """Everything works again."""
        self._servers.look_after()
        await self._schedule.do_what_is_due(everything=True)
        await self._servers.settle()
        self._world.cluster.faults.clear()
        self._world.gate.late_share = 0.0
        await self._world.gate.settled()
        self._nodes.settle()
        self._tell("everything works again")

    async def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            await self._schedule.do_what_is_due()
            self._servers.look_after()
            if (left := end - time.monotonic()) <= 0:
                return
            await asyncio.sleep(min(_LOOK_EACH, left))

    def _tell(self, text: str) -> None:
        self._world.story.tell(text)

    async def _outage(self) -> bool:
        return self._away("refuse")

    async def _hang(self) -> bool:
        return self._away("hang")

    def _away(self, how: str) -> bool:
        faults = self._world.cluster.faults
        if faults.in_outage:
            return False
        seconds = self._chance.uniform(*self._world.setup.outage)
        self._tell(f"the API server is away for {seconds:.1f} s ({how})")
        faults.outage(seconds, "refuse" if how == "refuse" else "hang")
        return True

    async def _partition(self) -> bool:
        replica = self._chance.choice(self._world.replicas)
        self._tell(f"{replica.name} cannot reach the API server")
        self._world.gate.cut(replica.name)

        async def mend() -> None:
            self._world.gate.mend(replica.name)
            self._tell(f"{replica.name} reaches the API server again")

        self._schedule.later(self._chance.uniform(0.5, 2.5 * self._world.setup.lease), mend)
        return True

    async def _bad_lists(self) -> bool:
        """For longer than a takeover takes, and not always: who asks again gets its list in the end."""
        failing = Faults(errors=0.5, only=_LISTS, seed=self._chance.randrange(2**30))
        return self._faulty("lists fail", failing, 3 * self._world.setup.lease)

    async def _weather(self) -> bool:
        weather = Faults(
            latency=(0.0, self._chance.choice((0.0, 0.05, 0.3))),
            conflicts=0.08,
            errors=0.06,
            busy=0.02,
            lost_requests=0.04,
            lost_answers=0.08,
            drop_watches_each=self._chance.choice((0.0, 1.0)),
            seed=self._chance.randrange(2**30),
        )
        return self._faulty("bad weather", weather, self._world.setup.lease)

    def _faulty(self, text: str, faults: Faults, longest: float) -> bool:
        if self._world.cluster.faults.now != Faults():
            return False
        self._tell(text)
        self._world.cluster.faults.set(faults)

        async def clear() -> None:
            if self._world.cluster.faults.now is faults:
                self._world.cluster.faults.set(Faults())
                self._tell(f"no more: {text}")

        self._schedule.later(self._chance.uniform(1.0, longest), clear)
        return True

    async def _late_writes(self) -> bool:
        self._world.gate.late_share = self._chance.choice((0.1, 0.3, 0.6))
        self._tell(f"{self._world.gate.late_share:.0%} of writes are made late")

        async def clear() -> None:
            self._world.gate.late_share = 0.0

        self._schedule.later(self._chance.uniform(1.0, 5.0), clear)
        return True

    async def _drop_watches(self) -> bool:
        self._world.cluster.faults.drop_watches()
        self._tell("all watches are cut")
        return True
