"""Simulated cards for hollow nodes: with links, cut into MIG instances if asked for, busy with simulated programs, and
able to fail and return."""

import queue
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from aliquot.agent.devices import (
    CardError,
    ContainerEdits,
    DeviceNode,
    Judgement,
    Machine,
    OpenWay,
    Processes,
    Usage,
)
from aliquot.agent.nvidia import visible_cards, xids
from aliquot.embedded.programs import Programs
from aliquot.errors import BadConfig
from aliquot.model import Gpu, Link
from aliquot.model.links import NVLINK, Pcie
from aliquot.signals import Signal

MODELS = {
    "Tesla T4": 15360,
    "Tesla V100-SXM2-32GB": 32768,
    "NVIDIA A10": 23028,
    "NVIDIA A100-SXM4-40GB": 40960,
    "NVIDIA A100-SXM4-80GB": 81920,
    "NVIDIA H100 80GB HBM3": 81559,
}
"""Well-known cards and their memory in MiB, as NVML reports it."""

PROFILES = {"1g.10gb": 9728, "2g.20gb": 19968, "3g.40gb": 40192}
"""MIG profiles of a card with 80 GiB and the memory of such an instance in MiB."""

_PAIRED = {"Tesla V100-SXM2-32GB": 2}
"""Models of which two neighbours are connected by so many NVLinks."""
_SWITCHED = {"NVIDIA A100-SXM4-40GB": 12, "NVIDIA A100-SXM4-80GB": 12, "NVIDIA H100 80GB HBM3": 18}
"""Models of which each card reaches every other one through NVSwitches, with so many NVLinks."""
_FIRST_CAPABILITY = 3
"""The first device node of a MIG instance. Those before it open the configuration of MIG."""
_WATTS = {
    "Tesla T4": 70,
    "Tesla V100-SXM2-32GB": 300,
    "NVIDIA A10": 150,
    "NVIDIA A100-SXM4-40GB": 400,
    "NVIDIA A100-SXM4-80GB": 400,
    "NVIDIA H100 80GB HBM3": 700,
}
"""What a card draws at most. An idle one draws a seventh of it."""
_COOLEST, _HOTTEST = 35, 80
"""Degrees Celsius of an idle card, and of a busy one."""


class SimulatedGpus:
    """Simulated cards of the given models. A node name always gives the same UUIDs. `mig` says by index which cards are
    cut, and into instances of which profiles. Raises BadConfig."""

    def __init__(self, node: str, models: Sequence[str], mig: Mapping[int, Sequence[str]] | None = None) -> None:
        if unknown := sorted(set(models) - MODELS.keys()):
            raise BadConfig(f"no simulated card is called {', '.join(unknown)}; there are {', '.join(MODELS)}")
        cards = [
            Gpu(
                uuid=f"GPU-{_made_up(node, index)}",
                index=index,
                # not the index: machines differ there, and code that mixes the two up should be seen
                minor=len(models) - 1 - index,
                model=model,
                mib=MODELS[model],
                numa=_numa(index, len(models)),
                brand="BRAND_NVIDIA",
                bus_id=f"00000000:{index + 1:02X}:00.0",
            )
            for index, model in enumerate(models)
        ]
        instances = [own for card in cards for own in _instances(node, card, (mig or {}).get(card.index, ()))]
        linked = [replace(card, links=tuple(_links(card, cards))) for card in cards]
        self._gpus = (*linked, *instances)
        self.mib: Mapping[str, int] = {gpu.uuid: gpu.mib for gpu in self._gpus}
        """Memory by UUID."""
        self.programs = Programs()
        self._faults: dict[str, str] = {}
        self._lost: frozenset[str] = frozenset()
        self._errors: queue.SimpleQueue[CardError] = queue.SimpleQueue()
        self.changed: Signal[Machine] = Signal()
        """Emitted when a card has failed or returned."""

    def read(self) -> Machine:
        if not self._faults:
            return Machine(self._gpus, usage={gpu.uuid: self._usage(gpu) for gpu in self._gpus})
        faults = {gpu.uuid: why for gpu in self._gpus if (why := self._faults.get(gpu.parent or gpu.uuid))}
        gpus = tuple(replace(gpu, healthy=gpu.uuid not in faults) for gpu in self._gpus)
        absent = frozenset(gpu.uuid for gpu in gpus if (gpu.parent or gpu.uuid) in self._lost)
        usage = {gpu.uuid: self._usage(gpu) for gpu in gpus if gpu.uuid not in absent}
        return Machine(gpus, faults=faults, absent=absent, usage=usage)

    def _usage(self, gpu: Gpu) -> Usage:
        """A MIG instance has no sensors of its own."""
        running = self.programs.on(gpu.uuid)
        memory, processes = sum(each.memory_bytes or 0 for each in running), Processes(time.monotonic(), running)
        if gpu.parent:
            return Usage(memory_bytes=memory, processes=processes)
        cores = min(1.0, sum(each.cores or 0.0 for each in running))
        most = _WATTS[gpu.model]
        return Usage(
            cores=cores,
            memory_bytes=memory,
            celsius=round(_COOLEST + (_HOTTEST - _COOLEST) * cores),
            watts=round(most / 7 + most * cores * 6 / 7),
            processes=processes,
        )

    def wait_for_events(self, seconds: float) -> Sequence[CardError]:
        try:
            return [self._errors.get(timeout=seconds)]
        except queue.Empty:
            return []

    def judge(self, code: int) -> Judgement:
        return xids.judge(code, {})

    def fail(self, uuid: str, why: str) -> None:
        """Make a card fail, with all of its MIG instances."""
        self._faults[uuid] = why
        self.changed.emit(self.read())

    def lose(self, uuid: str) -> None:
        """Make a card fall off the bus."""
        self._lost |= {uuid}
        self.fail(uuid, "the card fell off the bus")

    def report_xid(self, uuid: str, code: int) -> None:
        """The driver reports an error of a card."""
        self._errors.put(CardError(uuid, code))

    def recover(self, uuid: str) -> None:
        self._lost -= {uuid}
        del self._faults[uuid]
        self.changed.emit(self.read())

    @property
    def decisive_variables(self) -> frozenset[str]:
        return frozenset()

    @property
    def limited_variables(self) -> frozenset[str]:
        return frozenset()

    @property
    def open_ways(self) -> Sequence[OpenWay]:
        return ()

    def edits(self, gpus: Sequence[Gpu], *, with_cdi: bool = True) -> ContainerEdits:  # noqa: ARG002
        paths = dict.fromkeys(path for gpu in gpus for path in (f"/dev/nvidia{gpu.minor}", *self._capabilities(gpu)))
        return ContainerEdits(device_nodes=tuple(DeviceNode(path, path) for path in (*paths, "/dev/nvidiactl")))

    def _capabilities(self, gpu: Gpu) -> tuple[str, ...]:
        """The two device nodes that open a MIG instance."""
        if not gpu.parent:
            return ()
        place = [other.uuid for other in self._gpus if other.parent].index(gpu.uuid)
        first = _FIRST_CAPABILITY + 2 * place
        return tuple(f"/dev/nvidia-caps/nvidia-cap{number}" for number in (first, first + 1))

    def visible_cards(
        self, edits: ContainerEdits, gpus: Sequence[Gpu] = (), cdi_devices: Sequence[str] = ()
    ) -> frozenset[str]:
        return visible_cards(edits, gpus, cdi_devices)

    def restore_links(self, edits: ContainerEdits, gpus: Sequence[Gpu]) -> None:
        """No other plugin serves these cards."""


def _made_up(node: str, index: int) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, f"{index}.{node}.aliquot.io")


def _numa(index: int, cards: int) -> int:
    """Machines with more than two cards have two CPUs with half of the cards each."""
    return int(cards > 2 and index >= (cards + 1) // 2)


def _links(card: Gpu, cards: Sequence[Gpu]) -> Iterator[Link]:
    for other in cards:
        if other.index != card.index:
            path = Pcie.HOST_BRIDGE if other.numa == card.numa else Pcie.CROSS_CPU
            yield Link(other.uuid, NVLINK * _nvlinks(card, other) + path)


def _nvlinks(card: Gpu, other: Gpu) -> int:
    if card.model != other.model:
        return 0
    are_neighbours = card.index // 2 == other.index // 2
    return _SWITCHED.get(card.model, 0) or (_PAIRED.get(card.model, 0) if are_neighbours else 0)


def _instances(node: str, card: Gpu, profiles: Sequence[str]) -> Iterator[Gpu]:
    """The instances of a card. Their indexes follow the rule of `agent.nvidia.mig`: instance 1/0 of card 2 has 3010."""
    for number, profile in enumerate(profiles, start=1):
        index = (card.index + 1) * 1000 + number * 10
        yield replace(
            card,
            uuid=f"MIG-{_made_up(node, index)}",
            index=index,
            mib=PROFILES[profile],
            parent=card.uuid,
            profile=profile,
        )
