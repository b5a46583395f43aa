"""The owners of processes: in which container each one runs, according to the host's /proc."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aliquot.agent.devices import Processes
from aliquot.agent.usage.cgroups import Container, container_in

_KERNEL_THREADS = "kthreadd"
"""Process 2 of the host, and of no other PID namespace."""
_START = 19
"""The place of the start time in `/proc/PID/stat`, after the name."""
_ROOM = 16384


@dataclass(frozen=True)
class Owner:
    """Whose a process is. `container` is None on the host itself."""

    container: Container | None
    started: float = 0.0
    """In seconds since the epoch."""
    name: str = ""
    """The process's own, as far as the kernel keeps it."""


class FindsOwners(Protocol):
    def of(self, cards: Iterable[Processes]) -> Mapping[int, Owner] | None:
        """The owners of processes by PID, without those that have ended. None if this agent cannot see them. May
        block."""


class HostProcesses:
    """The processes of the host. `proc` is a /proc that shows them: our own with hostPID, or the host's own mount."""

    def __init__(self, proc: Path) -> None:
        self._proc = str(proc)
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._known: dict[int, tuple[int, Owner]] = {}
        """Start time and owner by PID."""

    def of(self, cards: Iterable[Processes]) -> Mapping[int, Owner] | None:
        if not self._shows_host():
            return None
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        asked_at = {process.pid: card.asked_at for card in cards for process in card.running}
        known = {}
        for pid, before in asked_at.items():
            if (found := self._look(pid, before, booted)) is not None:
                known[pid] = found
        self._known = known
        return {pid: owner for pid, (_, owner) in known.items()}

    def _shows_host(self) -> bool:
        try:
            return Path(self._proc, "2", "comm").read_text().strip() == _KERNEL_THREADS
        except OSError:
            return False

    def _look(self, pid: int, before: float, booted: float) -> tuple[int, Owner] | None:
        """The start time and the owner of a process that ran before the driver was asked. One that started in the same
        tick is left out: nobody knows whether it is the one that the driver meant."""
        try:
            name, start = self._stat(pid)
            if (start + 1) / self._ticks > before:
                return None
            if (known := self._known.get(pid)) is not None and known[0] == start:
                return known  # a process uses a card only after the container runtime has put it where it belongs
            container = container_in(_text(f"{self._proc}/{pid}/cgroup"))
            if self._stat(pid) != (name, start):
                return None  # the cgroup may be that of the next process with this PID
        except (OSError, ValueError, IndexError):
            return None
        return start, Owner(container, booted + start / self._ticks, name)

    def _stat(self, pid: int) -> tuple[str, int]:
        """The name and the start time of a process, in ticks since boot. Raises OSError if it has ended."""
        name, _, rest = _text(f"{self._proc}/{pid}/stat").partition("(")[2].rpartition(")")
        return name, int(rest.split(maxsplit=_START + 1)[_START])


def _text(path: str) -> str:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _ROOM).decode(errors="replace")
    finally:
        os.close(file)
