"""Reads every card of the machine, and keeps what it knows of a card that fails."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pynvml
import structlog

from aliquot.agent.devices import Machine, Usage
from aliquot.agent.nvidia import mig
from aliquot.agent.nvidia.card import Card, read_card
from aliquot.agent.nvidia.processes import ProcessLists
from aliquot.agent.nvidia.session import DRIVER_GONE, Session
from aliquot.agent.nvidia.threads import Failure, Threads
from aliquot.agent.nvidia.topology import Pair, links, pcie_paths
from aliquot.errors import BadConfig, NoDriver
from aliquot.model import Gpu
from aliquot.model.links import Pcie

_log = structlog.get_logger()

_DRIVER = "driver"
_NOT_LISTED = Failure("the driver no longer lists it", pynvml.NVML_ERROR_NOT_FOUND)
_OFF_THE_BUS = DRIVER_GONE | {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND}

_Answers = Mapping[int, Card | Failure]
"""What the cards answer, by their place in NVML's order."""


class Reader:
    """The cards of this machine.

    A card that was read once stays in the list until the agent ends. While it does not answer, or the driver does not
    list it, it has its last values and a fault. It also keeps its index: NVML numbers the cards that are left.
    """

    def __init__(self, session: Session, threads: Threads, sysfs: Path, processes: ProcessLists) -> None:
        self._session = session
        self._threads = threads
        self._sysfs = sysfs
        self._processes = processes
        self._driver = ""
        self._known: dict[str, Card] = {}
        self._indexes: dict[str, int] = {}
        self._paths: dict[Pair, Pcie] = {}
        self._left_out: Mapping[int, str] = {}
        """Why cards of which nothing is known do not answer, by their place."""
        self.answering: Collection[Card] = ()
        """The cards that answered last."""

    def read(self) -> Machine:
        """Every card by index. Raises NoDriver if there is none, and BadConfig if the driver was updated: only a new
        process can load its new library."""
        answers = self._ask()
        if _is_stale(answers) and not self._threads.are_busy:
            self._session.distrust()
            answers = self._ask()
        if isinstance(answers, Failure):
            if answers.code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
                raise BadConfig(answers.why)
            if not self._known:
                raise NoDriver(answers.why)
            self.answering = ()
            return self._machine(dict.fromkeys(self._known, answers))
        missing = self._learn(answers)
        if not self._known:
            left_out = "; ".join(f"card {place}: {why}" for place, why in self._left_out.items())
            raise NoDriver(f"no card of this node answers; `nvidia-smi` on the node shows more ({left_out})")
        return self._machine(missing)

    def _ask(self) -> _Answers | Failure:
        """What every card answers, or why none was asked."""
        listed = self._threads.ask({_DRIVER: partial(self._list, self._threads.are_busy)})[_DRIVER]
        if isinstance(listed, Failure):
            return replace(listed, why=f"NVML does not work: {listed.why}; {_what_to_check(listed)}")
        count, self._driver = listed
        if not count:
            self._session.distrust()
            why = "the driver lists no card; `lspci` and `nvidia-smi -L` on the node show what there is"
            return Failure(why, pynvml.NVML_ERROR_NOT_FOUND)
        read = partial(read_card, self._session.nvml, sysfs=self._sysfs, processes=self._processes)
        return self._threads.ask({place: partial(read, place) for place in range(count)})

    def _list(self, is_in_use: bool) -> tuple[int, str]:
        """The number of cards and the driver's version. NVML is not initialised again beneath a call."""
        if not is_in_use:
            self._session.open()
        return self._session.nvml.nvmlDeviceGetCount(), self._session.driver()

    def _learn(self, answers: _Answers) -> Mapping[str, Failure]:
        """Keep what the cards answer. Returns why known cards are missing, by uuid."""
        self.answering = [answer for answer in answers.values() if isinstance(answer, Card)]
        self._known |= {card.uuid: card for card in self.answering}
        for card in self.answering:
            self._indexes.setdefault(card.uuid, self._free_index(card.gpu.index))
        self._learn_paths()
        failed = {place: answer for place, answer in answers.items() if isinstance(answer, Failure)}
        missing = self._known.keys() - {card.uuid for card in self.answering}
        faults = {uuid: failed.pop(self._known[uuid].gpu.index, _NOT_LISTED) for uuid in missing}
        self._leave_out(failed)
        return faults

    def _leave_out(self, failed: Mapping[int, Failure]) -> None:
        for place, failure in failed.items():
            if self._left_out.get(place) != failure.why:
                _log.warning("a card is left out until it answers", index=place, why=failure.why)
        self._left_out = {place: failure.why for place, failure in failed.items()}

    def _learn_paths(self) -> None:
        """PCIe paths do not change, so each pair is asked for once."""
        cards = list(self.answering)
        calls = {}
        for place, card in enumerate(cards):
            others = [other for other in cards[:place] if frozenset((card.uuid, other.uuid)) not in self._paths]
            if others:
                calls[card.gpu.index] = partial(pcie_paths, self._session.nvml, card, others)
        for answer in self._threads.ask(calls).values():
            if not isinstance(answer, Failure):
                self._paths.update(answer)

    def _free_index(self, wanted: int) -> int:
        taken = set(self._indexes.values())
        return wanted if wanted not in taken else next(index for index in range(len(taken) + 1) if index not in taken)

    def _machine(self, missing: Mapping[str, Failure]) -> Machine:
        gpus: list[Gpu] = []
        faults: dict[str, str] = {}
        absent: set[str] = set()
        usage: dict[str, Usage] = {}
        for uuid, card in self._known.items():
            index, failure = self._indexes[uuid], missing.get(uuid)
            why = failure.why if failure else card.fault
            ways = links(card, self._known.values(), self._paths)
            own = [replace(card.gpu, index=index, links=ways)]
            own += [replace(instance.gpu, index=mig.index(index, instance)) for instance in card.instances]
            gpus += [replace(gpu, healthy=not why) for gpu in own]
            faults |= {gpu.uuid: why for gpu in own if why}
            if failure and failure.code in _OFF_THE_BUS:
                absent |= {gpu.uuid for gpu in own}
            if not failure:
                usage |= {uuid: card.usage, **{each.gpu.uuid: each.usage for each in card.instances}}
        in_order = tuple(sorted(gpus, key=lambda gpu: gpu.index))
        return Machine(in_order, self._driver, faults, frozenset(absent), self._left_out, usage)

    def instance(self, uuid: str) -> mig.Instance | None:
        """The MIG instance with this uuid, as it was last read."""
        known = (instance for card in self._known.values() for instance in card.instances)
        return next((instance for instance in known if instance.gpu.uuid == uuid), None)


def _is_stale(answers: _Answers | Failure) -> bool:
    """Whether NVML must be initialised again: the driver is another one, or has lost every card."""
    if isinstance(answers, Failure):
        return answers.code in DRIVER_GONE
    codes = [answer.code if isinstance(answer, Failure) else pynvml.NVML_SUCCESS for answer in answers.values()]
    return any(code in DRIVER_GONE for code in codes) or all(code == pynvml.NVML_ERROR_GPU_IS_LOST for code in codes)


def _what_to_check(failure: Failure) -> str:
    match failure.code:
        case None:
            return "the driver may be stuck, `dmesg` on the node can tell"
        case pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            return "the driver was updated, so the agent must start again; restart the node if that does not help"
        case _:
            return "is the NVIDIA driver installed and loaded, and its libnvidia-ml.so.1 visible here?"
