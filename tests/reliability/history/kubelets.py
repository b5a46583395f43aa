"""Users who make pods and take them away, and nodes that start and end them; beside them, the originals' agents."""

import asyncio
from typing import Any

from tests.reliability.history import demands, kinds
from tests.reliability.history.demands import Taken
from tests.reliability.history.machines import Machine
from tests.reliability.history.witness import (
    Pod,
    has_ended,
    has_started,
    is_leaving,
    is_placed,
    node_of,
)
from tests.reliability.history.world import World

_EACH_SECONDS = 0.25
_NAMES = 150
"""So few that names come back."""
_START, _END, _EBB, _DELETE, _FORCE, _CLEAR = 0.3, 0.03, 0.15, 0.01, 0.005, 0.3
"""How likely each is for a pod at each look; `_EBB` is that of an end while there are more pods than there shall be."""
_TIDES = (0.3, 1.0, 2.0, 3.0, 4.0)
_TURN = 0.015
"""How likely the tide turns each time that users look."""


class Users:
    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance

    async def run(self) -> None:
        while True:
            if not self._world.is_paused:
                self._make()
            await asyncio.sleep(self._chance.uniform(0.0, 0.2))

    def _make(self) -> None:
        world = self._world
        waiting = world.witness.waiting()
        if self._chance.random() < _TURN:
            world.tide = self._chance.choice(_TIDES)
        if world.is_calm or len(waiting) >= world.setup.waiting or is_high(world):
            if waiting and not world.is_calm and self._chance.random() < 0.03:
                world.delete_pod(self._chance.choice(waiting), 0)
            return
        dialect = self._chance.choices(list(world.setup.pods), list(world.setup.pods.values()))[0]
        world.create_pod(kinds.manifest(self._chance, dialect, f"p{self._chance.randrange(_NAMES)}"))


class Kubelets:
    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance

    async def run(self) -> None:
        while True:
            if not self._world.is_paused:
                for pod in self._world.witness.bound():
                    self._look_at(pod)
            await asyncio.sleep(_EACH_SECONDS)

    def _look_at(self, pod: Pod) -> None:
        machine = self._world.machines[node_of(pod)]
        if not machine.is_there:
            return
        if is_leaving(pod):
            if self._happens(_START):
                self._world.delete_pod(pod, 0)
        elif has_ended(pod):
            if self._happens(_CLEAR):
                self._world.delete_pod(pod)
        elif not has_started(pod):
            if self._happens(_START):
                self._start(pod, machine)
            self._delete_some(pod)
        elif not self._world.is_calm and self._happens(_EBB if is_high(self._world) else _END):
            self._world.write_status(pod, phase="Succeeded", containerStatuses=_states(pod, {"terminated": {}}))
        else:
            self._delete_some(pod)

    def _delete_some(self, pod: Pod) -> None:
        if self._world.is_calm:
            return
        if self._happens(_DELETE):
            self._world.delete_pod(pod, 30)
        elif self._happens(_FORCE):
            self._world.delete_pod(pod, 0)

    def _start(self, pod: Pod, machine: Machine) -> None:
        marks: dict[str, str] = {}
        if machine.agent == "tencent":
            found = self._given_by_gpu_manager(pod, machine)
            if found is None:
                self._world.figures.counts["pods that gpu-manager refuses"] += 1
                self._world.tell("gpu-manager has no room", pod)
                self._world.write_status(pod, phase="Failed", reason="UnexpectedAdmissionError")
                return
            marks = found
        elif machine.agent == "nvidia":
            if not self._is_admitted(pod, machine):
                self._world.figures.counts["pods that NVIDIA's plugin refuses"] += 1
                self._world.tell("NVIDIA's plugin has no room", pod)
                self._world.write_status(pod, phase="Failed", reason="UnexpectedAdmissionError")
                return
        elif not is_placed(pod) or (machine.is_ours and not machine.is_shown):
            return
        elif machine.agent == "gpushare":
            marks = {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
        self._world.write_status(pod, marks, phase="Running", containerStatuses=_states(pod, {"running": {}}))

    def _is_admitted(self, pod: Pod, machine: Machine) -> bool:
        """Whether kubelet has as many cards left as the pod asks for, whole ones, of which nobody knows the names."""
        others = [own for own in self._world.witness.on(machine.name) if has_started(own) and not has_ended(own)]
        asked = [part.cards for own in (*others, pod) for part in demands.parts(own).values()]
        return sum(asked) <= len(machine.cards)

    def _given_by_gpu_manager(self, pod: Pod, machine: Machine) -> dict[str, str] | None:
        """Its own choice, container by container: the first cards that have room. None if there are none."""
        taken = {card.uuid: self._world.witness.sum(card.uuid) for card in machine.cards}
        marks = {"tencent.com/gpu-assigned": "true", "tencent.com/predicate-node": machine.name}
        asked = demands.parts(pod)
        for place, container in enumerate(pod["spec"]["containers"]):
            part = asked.get(container["name"])
            if part is None:
                continue
            fitting = [
                index
                for index, card in enumerate(machine.cards)
                if demands.has_room(card, taken[card.uuid], part.of(card))
                and (not part.is_whole or taken[card.uuid] == Taken())
            ][: part.cards]
            if len(fitting) < part.cards:
                return None
            for index in fitting:
                card = machine.cards[index]
                taken[card.uuid] = taken[card.uuid].plus(part.of(card))
            marks[f"tencent.com/predicate-gpu-idx-{place}"] = ",".join(map(str, fitting))
        return marks

    def _happens(self, share: float) -> bool:
        return self._chance.random() < share


def is_high(world: World) -> bool:
    """Whether there are more pods than there shall be."""
    cards = sum(len(machine.cards) for machine in world.machines.values())
    return len(world.witness.pods) > world.tide * cards


def _states(pod: Pod, state: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": container["name"], "state": state} for container in pod["spec"]["containers"]]
