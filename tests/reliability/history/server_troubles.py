"""What goes wrong with servers: they are killed, stopped, suspended, told to end; their clocks jump."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping

from aliquot import faults
from aliquot.embedded.api import resources
from tests.reliability.history.figures import ENDED
from tests.reliability.history.schedule import Schedule
from tests.reliability.history.world import Replica, World

_FAULT_POINTS = [point for point in faults.POINTS if point not in ("after-allocate", "in-prestart")]
"""Those of a server, not of an agent."""
_LONGEST_END = 120.0
"""Seconds in which a server that was told to end has ended, on however busy a machine."""


class ServerTroubles:
    """`takeover` makes trouble for whoever takes over."""

    def __init__(self, world: World, schedule: Schedule, takeover: Callable[[], Awaitable[bool]]) -> None:
        self._world = world
        self._chance = world.chance
        self._schedule = schedule
        self._takeover = takeover
        self.kinds: Mapping[str, Callable[[], Awaitable[bool]]] = {
            "kill": self._kill,
            "stop": self._stop,
            "term": self._term,
            "suspend": self._suspend,
            "jump": self._jump,
        }

    def look_after(self) -> None:
        """Servers that reached their fault points go on, or start anew; no other one ends by itself."""
        for replica in self._world.replicas:
            process = replica.server.process
            if process is None or replica.is_ending or replica.stopped_at is not None:
                continue
            if process.poll() is not None:
                replica.is_ending = True
                if replica.fault:
                    self._world.figures.counts["trouble: killed at a fault point"] += 1
                    self._tell(f"{replica.name} was killed {replica.fault}")
                else:
                    self._world.violate(ENDED, f"{replica.name} ended with {process.returncode}", ())
                self._start_later(replica)
            elif replica.fault.endswith(":stop") and replica.server.is_stopped():
                self._world.figures.counts["trouble: stopped at a fault point"] += 1
                self._tell(f"{replica.name} was stopped {replica.fault}")
                self._go_on_later(replica, suspended=False)

    async def settle(self) -> None:
        """A fault point that was not reached yet must not be reached later, so such servers start anew."""
        for replica in self._world.replicas:
            if replica.fault:
                await replica.server.kill()
                replica.fault = ""
                replica.server.start()

    def _running(self) -> Replica | None:
        """One that runs; mostly the holder of the Lease."""
        running = [replica for replica in self._world.replicas if replica.runs]
        held = self._world.cluster.store.get(resources.LEASES.collection, ("aliquot-system", "aliquot-server"))
        name = ((held.obj["spec"].get("holderIdentity") or "") if held else "") or "-"
        leading = [r for r in running if r.server.process and f"_{r.server.process.pid}_" in name]
        if leading and self._chance.random() < 0.7:
            return leading[0]
        return self._chance.choice(running) if running else None

    async def _kill(self) -> bool:
        replica = self._running()
        if replica is None:
            return False
        self._tell(f"SIGKILL of {replica.name}")
        replica.is_ending = True
        await replica.server.kill()
        self._start_later(replica)
        return await self._ended()

    async def _term(self) -> bool:
        replica = self._running()
        if replica is None:
            return False
        self._tell(f"SIGTERM of {replica.name}")
        replica.is_ending = True
        replica.server.send(signal.SIGTERM)
        self._start_later(replica)
        return await self._ended()

    async def _ended(self) -> bool:
        if self._chance.random() < 0.4:
            await self._takeover()
        return True

    def _start_later(self, replica: Replica) -> None:
        async def start() -> None:
            await self._until_ended(replica)
            replica.is_ending = False
            replica.fault = self._fault_point()
            replica.server.start(fault=replica.fault)
            self._tell(f"{replica.name} starts {replica.fault}")

        self._schedule.later(self._chance.uniform(0.0, 1.5 * self._world.setup.lease), start)

    async def _until_ended(self, replica: Replica) -> None:
        """It may have been stopped at its fault point on the way out."""
        process, end = replica.server.process, time.monotonic() + _LONGEST_END
        while process is not None and process.poll() is None:
            if replica.server.is_stopped():
                replica.server.send(signal.SIGCONT)
            if time.monotonic() > end:
                self._world.violate(ENDED, f"{replica.name} was told to end and has not after {_LONGEST_END:.0f} s", ())
                await replica.server.kill()
            await asyncio.sleep(0.1)

    def _fault_point(self) -> str:
        """Where a server is killed or stopped when it comes there for the first time; mostly nowhere."""
        if self._world.is_calm or self._chance.random() > 0.3:
            return ""
        return self._chance.choice(_FAULT_POINTS) + self._chance.choice(("", ":stop"))

    async def _stop(self, *, suspended: bool = False) -> bool:
        replica = self._running()
        if replica is None:
            return False
        self._tell(f"SIGSTOP of {replica.name}{', its machine is suspended' if suspended else ''}")
        replica.server.send(signal.SIGSTOP)
        self._go_on_later(replica, suspended=suspended)
        return True

    def _go_on_later(self, replica: Replica, *, suspended: bool) -> None:
        began = replica.stopped_at = time.monotonic()

        async def go_on() -> None:
            replica.stopped_at = None
            if suspended:
                replica.clock.stand_still(time.monotonic() - began)
            replica.server.send(signal.SIGCONT)
            self._tell(f"SIGCONT of {replica.name}")

        self._schedule.later(self._chance.uniform(0.2, 2.5 * self._world.setup.lease), go_on)

    async def _suspend(self) -> bool:
        return await self._stop(suspended=True)

    async def _jump(self) -> bool:
        replica = self._chance.choice(self._world.replicas)
        seconds = self._chance.choice((-86400.0, -120.0, -3.0, 3.0, 120.0, 86400.0)) * self._chance.random()
        replica.clock.jump(seconds)
        self._tell(f"the wall clock of {replica.name} jumps by {seconds:.1f} s")
        return True

    def _tell(self, text: str) -> None:
        self._world.story.tell(text)
