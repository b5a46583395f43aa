"""What a rig changes on the machine outside its processes, written down so that anybody can undo it later."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.rig import cgroups
from tests.rig.network import FORWARDING, PodNetwork

_PREFIX = "aliquot-rig-"
_NOTE = "rig.json"


@dataclass(frozen=True, slots=True)
class Note:
    """The note in a rig's folder; made before the machine is changed."""

    folder: str
    owner: int
    owner_started: int
    subnets: list[str]
    cgroup: str
    forwarding_before: str

    @classmethod
    def write(cls, networks: Iterable[PodNetwork]) -> "Note":
        """Make a folder for a new rig and leave the note in it."""
        before = next(
            (note.forwarding_before for note in every_note()), FORWARDING.read_text().strip()
        )  # a rig that runs already has changed it
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        note = cls(
            folder=str(folder),
            owner=os.getpid(),
            owner_started=_started(os.getpid()) or 0,
            subnets=[network.subnet for network in networks],
            cgroup=folder.name,
            forwarding_before=before,
        )
        part = folder / f"{_NOTE}.part"
        part.write_text(json.dumps(asdict(note)))
        part.rename(folder / _NOTE)
        return note

    @property
    def in_use(self) -> bool:
        return _started(self.owner) == self.owner_started

    @property
    def cgroups(self) -> list[str]:
        """One for each node: kubelet removes what it does not know below its own."""
        return [f"{self.cgroup}-{number}" for number in range(len(self.subnets))]

    def undo(self) -> None:
        """Undo all that the rig changed; its processes must have ended or be about to."""
        for cgroup in self.cgroups:
            cgroups.remove(cgroup)
        for network in map(PodNetwork, self.subnets):
            network.remove_links()
            network.remove_node_address()
        shutil.rmtree(self.folder)
        if not any(every_note()):
            FORWARDING.write_text(self.forwarding_before)


def every_note() -> Iterator[Note]:
    """The notes of all rigs on this machine, running or not."""
    for file in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_NOTE}")):
        with suppress(FileNotFoundError):  # that rig is going down just now
            yield Note(**json.loads(file.read_text()))


def clear() -> list[Note]:
    """Undo what rigs left behind whose owner is gone; returns their notes."""
    abandoned = [note for note in every_note() if not note.in_use]
    for note in abandoned:
        note.undo()
    return abandoned


def _started(process: int) -> int | None:
    """When a process started, to tell it from a later one with the same id."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])
