"""What goes wrong with nodes: inventories that vanish, appear, shrink and are renumbered, nodes that go and come."""

from collections.abc import Awaitable, Callable, Mapping

from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from tests.reliability.history.machines import Machine
from tests.reliability.history.witness import PLACEMENT
from tests.reliability.history.world import World


class NodeTroubles:
    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance
        self.kinds: Mapping[str, Callable[[], Awaitable[bool]]] = {
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

    def settle(self) -> None:
        """Every node is there, with all of its cards."""
        for machine in self._world.machines.values():
            machine.dead.clear()
            machine.is_shown, machine.is_cordoned = machine.is_ours, False
            if not machine.is_there:
                self._make(machine)
            self._world.write_node(machine)

    def _tell(self, text: str, *about: str) -> None:
        self._world.story.tell(text, *about)

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
        pods = self._world.witness.on(machine.name)
        return [record for pod in pods if (record := (pod["metadata"].get("annotations") or {}).get(PLACEMENT, ""))]
