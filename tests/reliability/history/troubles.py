"""Whatever goes wrong in a cluster: servers, the API server, the network, clocks, nodes."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.faults import Faults
from tests.reliability.history.machines import Machine
from tests.reliability.history.witness import PLACEMENT, node_of
from tests.reliability.history.world import Replica, World

_LISTS = frozenset({"list pods", "list nodes"})
_LONGEST_END = 120.0
"""Seconds in which a server that was told to end has ended, on however busy a machine."""
_Undo = Callable[[], Awaitable[None]]


class Troubles:
    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance
        self._undo: list[tuple[float, _Undo]] = []
        """What ends a trouble, and when it is due."""
        self._kinds: dict[str, Callable[[], Awaitable[bool]]] = {
            "kill": self._kill,
            "stop": self._stop,
            "term": self._term,
            "suspend": self._suspend,
            "jump": self._jump,
            "outage": self._outage,
            "hang": self._hang,
            "partition": self._partition,
            "bad lists": self._bad_lists,
            "weather": self._weather,
            "late writes": self._late_writes,
            "drop watches": self._drop_watches,
            "hide inventory": self._hide_inventory,
            "show inventory": self._show_inventory,
            "lose card": self._lose_card,
            "find card": self._find_card,
            "renumber": self._renumber,
            "cordon": self._cordon,
            "uncordon": self._uncordon,
            "delete node": self._delete_node,
            "make node": self._make_node,
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
        for _, undo in self._undo:
            await undo()
        self._undo.clear()
        self._world.cluster.faults.clear()
        self._world.gate.late_share = 0.0
        await self._world.gate.settled()
        for machine in self._world.machines.values():
            machine.dead.clear()
            machine.is_shown, machine.is_cordoned = machine.is_ours, False
            if not machine.is_there:
                self._make(machine)
            self._world.write_node(machine)
        self._tell("everything works again")

    async def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            due = [entry for entry in self._undo if entry[0] <= now]
            self._undo = [entry for entry in self._undo if entry[0] > now]
            for _, undo in due:
                await undo()
            if now >= end:
                return
            await asyncio.sleep(min(0.1, end - now))

    def _later(self, seconds: float, undo: _Undo) -> None:
        self._undo.append((time.monotonic() + seconds, undo))

    def _tell(self, text: str, *about: str) -> None:
        self._world.story.tell(text, *about)

    # -- servers

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
        await replica.server.kill()
        self._start_later(replica)
        if self._chance.random() < 0.4:
            await self._bad_lists()
        return True

    async def _term(self) -> bool:
        replica = self._running()
        if replica is None:
            return False
        self._tell(f"SIGTERM of {replica.name}")
        replica.server.send(signal.SIGTERM)
        replica.is_ending = True
        self._start_later(replica)
        if self._chance.random() < 0.4:
            await self._bad_lists()
        return True

    def _start_later(self, replica: Replica) -> None:
        async def start() -> None:
            process = replica.server.process
            if process is not None:
                await asyncio.to_thread(process.wait, _LONGEST_END)
            replica.is_ending = False
            replica.server.start()
            self._tell(f"{replica.name} starts")

        self._later(self._chance.uniform(0.0, 1.5 * self._world.setup.lease), start)

    async def _stop(self, *, suspended: bool = False) -> bool:
        replica = self._running()
        if replica is None:
            return False
        self._tell(f"SIGSTOP of {replica.name}{', its machine is suspended' if suspended else ''}")
        replica.server.send(signal.SIGSTOP)
        began = replica.stopped_at = time.monotonic()

        async def go_on() -> None:
            replica.stopped_at = None
            if suspended:
                replica.clock.stand_still(time.monotonic() - began)
            replica.server.send(signal.SIGCONT)
            self._tell(f"SIGCONT of {replica.name}")

        self._later(self._chance.uniform(0.2, 2.5 * self._world.setup.lease), go_on)
        return True

    async def _suspend(self) -> bool:
        return await self._stop(suspended=True)

    async def _jump(self) -> bool:
        replica = self._chance.choice(self._world.replicas)
        seconds = self._chance.choice((-86400.0, -120.0, -3.0, 3.0, 120.0, 86400.0)) * self._chance.random()
        replica.clock.jump(seconds)
        self._tell(f"the wall clock of {replica.name} jumps by {seconds:.1f} s")
        return True

    # -- the API server, and the way to it

    async def _outage(self) -> bool:
        return self._away("refuse")

    async def _hang(self) -> bool:
        return self._away("hang")

    def _away(self, how: str) -> bool:
        faults = self._world.cluster.faults
        if faults.outage_now is not None:
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

        self._later(self._chance.uniform(0.5, 2.5 * self._world.setup.lease), mend)
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

        self._later(self._chance.uniform(1.0, longest), clear)
        return True

    async def _late_writes(self) -> bool:
        self._world.gate.late_share = self._chance.choice((0.1, 0.3, 0.6))
        self._tell(f"{self._world.gate.late_share:.0%} of writes are made late")

        async def clear() -> None:
            self._world.gate.late_share = 0.0

        self._later(self._chance.uniform(1.0, 5.0), clear)
        return True

    async def _drop_watches(self) -> bool:
        self._world.cluster.faults.drop_watches()
        self._tell("all watches are cut")
        return True

    # -- nodes

    def _any_machine(self, wanted: Callable[[Machine], bool]) -> Machine | None:
        found = [machine for machine in self._world.machines.values() if machine.is_there and wanted(machine)]
        return self._chance.choice(found) if found else None

    def _write(self, machine: Machine | None, text: str) -> bool:
        if machine is not None:
            self._tell(f"{machine.name}: {text}", machine.name)
            self._world.write_node(machine)
        return machine is not None

    async def _hide_inventory(self) -> bool:
        """Only where records and indexes agree: without uuids, indexes are all that is left to go by."""
        machine = self._any_machine(lambda m: m.is_shown and m.may_hide and self._indexes_agree(m))
        if machine is not None:
            machine.is_shown = False
        return self._write(machine, "the inventory vanishes")

    async def _show_inventory(self) -> bool:
        machine = self._any_machine(lambda m: m.is_ours and not m.is_shown)
        if machine is not None:
            machine.is_shown = True
        return self._write(machine, "the inventory is there")

    async def _lose_card(self) -> bool:
        machine = self._any_machine(lambda m: self._may_renumber(m) and len(m.listed) > 0)
        if machine is not None:
            machine.dead.add(self._chance.choice(machine.listed).uuid)
        return self._write(machine, f"cards are gone: {sorted(machine.dead) if machine else ''}")

    async def _find_card(self) -> bool:
        machine = self._any_machine(lambda m: self._may_renumber(m) and bool(m.dead))
        if machine is not None:
            machine.dead.clear()
        return self._write(machine, "all cards are there")

    async def _renumber(self) -> bool:
        machine = self._any_machine(self._may_renumber)
        if machine is not None:
            self._chance.shuffle(machine.cards)
        return self._write(machine, f"cards are renumbered: {[c.uuid for c in machine.listed] if machine else ''}")

    async def _cordon(self) -> bool:
        machine = self._any_machine(lambda m: not m.is_cordoned)
        if machine is not None:
            machine.is_cordoned = True
        return self._write(machine, "cordoned")

    async def _uncordon(self) -> bool:
        machine = self._any_machine(lambda m: m.is_cordoned)
        if machine is not None:
            machine.is_cordoned = False
        return self._write(machine, "uncordoned")

    async def _delete_node(self) -> bool:
        machine = self._any_machine(lambda m: m.is_shown or not m.is_ours)
        if machine is None:
            return False
        self._tell(f"{machine.name}: the Node is deleted", machine.name)
        machine.is_there = False
        self._world.cluster.registry.delete(resources.NODES, "", machine.name, DeleteRequest())
        return True

    async def _make_node(self) -> bool:
        gone = [machine for machine in self._world.machines.values() if not machine.is_there]
        if not gone:
            return False
        machine = self._chance.choice(gone)
        if machine.may_hide and self._indexes_agree(machine):
            machine.is_shown = self._chance.random() < 0.5
        self._make(machine)
        return True

    def _make(self, machine: Machine) -> None:
        self._tell(f"{machine.name}: the Node is there, inventory {machine.is_shown}", machine.name)
        machine.is_there = True
        self._world.cluster.registry.create(resources.NODES, "", machine.manifest())

    def _may_renumber(self, machine: Machine) -> bool:
        """Not while a record names a card by its index alone: nobody could say afterwards which one was meant."""
        return (
            machine.is_ours
            and machine.is_shown
            and not any(self._names_indexes(machine, r) for r in self._records(machine))
        )

    def _names_indexes(self, machine: Machine, record: str) -> bool:
        return f'"{machine.name}/' in record

    def _indexes_agree(self, machine: Machine) -> bool:
        """Whether every record has the indexes that its cards have now."""
        now = [f'"uuid":"{card.uuid}","index":{index},' for index, card in enumerate(machine.listed)]
        return all(
            record.count('"uuid":') == sum(record.count(own) for own in now) or self._names_indexes(machine, record)
            for record in self._records(machine)
        )

    def _records(self, machine: Machine) -> list[str]:
        pods = (pod for pod in self._world.witness.pods.values() if node_of(pod) == machine.name)
        return [record for pod in pods if (record := (pod["metadata"].get("annotations") or {}).get(PLACEMENT, ""))]
