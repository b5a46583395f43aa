"""The programs that containers run on simulated cards. What one uses follows from its pod's name and from what its
container was given, so it is the same in every run."""

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from aliquot.agent.devices import GpuProcess, Processes
from aliquot.agent.usage import Owner
from aliquot.agent.usage.cgroups import Container
from aliquot.model import Pod, Slice

_MIB = 2**20
_FIRST_PID = 1000
_IDLEST, _BUSIEST = 30, 90
"""Percent of what it was given that a program uses."""


def container_id(pod_uid: str, container: str) -> str:
    """The id of a simulated container, as long as a real one."""
    return hashlib.sha256(f"{pod_uid}/{container}".encode()).hexdigest()


def usual_percent(pod: Pod, parts: Iterable[Slice], card_mib: Mapping[str, int]) -> int:
    """How much of the time of each of its cards a pod uses about which nobody says anything."""
    shares = [part.cores or 100 * part.mib // card_mib[part.uuid] for part in parts if part.uuid in card_mib]
    return max(shares, default=0) * _activity(pod) // 100


def _activity(pod: Pod) -> int:
    return _IDLEST + zlib.crc32(pod.key.encode()) % (_BUSIEST - _IDLEST + 1)


@dataclass(frozen=True)
class _Program:
    pid: int
    owner: Container
    part: Slice
    memory_bytes: int
    cores: float


class Programs:
    """The programs of one machine. It finds their owners as the agent finds those of real processes."""

    def __init__(self) -> None:
        self._programs: Sequence[_Program] = ()
        self._pids = count(_FIRST_PID)

    def start(self, pod: Pod, container: str, parts: Iterable[Slice], percent: int) -> None:
        """A container starts a program on each of its cards, which uses so much of the card's time."""
        owner = Container(pod.metadata.uid, container_id(pod.metadata.uid, container))
        memory = (100 + _activity(pod)) / 200
        self._programs = [
            *self._programs,
            *(_Program(next(self._pids), owner, part, int(part.mib * memory) * _MIB, percent / 100) for part in parts),
        ]

    def end(self, pod_uid: str) -> None:
        self._programs = [program for program in self._programs if program.owner.pod_uid != pod_uid]

    def on(self, uuid: str) -> tuple[GpuProcess, ...]:
        return tuple(
            GpuProcess(each.pid, each.memory_bytes, each.cores, is_mps_client=each.part.slots > 0)
            for each in self._programs
            if each.part.uuid == uuid
        )

    def of(self, _: Iterable[Processes]) -> Mapping[int, Owner]:
        return {program.pid: Owner(program.owner) for program in self._programs}
