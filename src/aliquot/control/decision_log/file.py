"""Files of the decision log: the current file, and the previous file with the suffix `.1`."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from aliquot.control.decision_log.format import Line, is_beginning
from aliquot.errors import BadConfig

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_ONLY_OURS = 0o600
"""The log shows everybody's pods, so only we may read it."""
_BLOCK = 65536


def require_writable(path: Path) -> None:
    """Raises BadConfig unless a file can be written and replaced there. Creates no file."""
    trouble = ""
    if not os.access(path.parent, os.F_OK) or not path.parent.is_dir():  # Path alone raises without permission
        trouble = f"there is no folder {path.parent}"
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        trouble = "permission denied"
    elif path.is_dir():
        trouble = "it is a folder"
    elif path.exists() and not os.access(path, os.R_OK | os.W_OK):
        trouble = "permission denied"
    if trouble:
        raise BadConfig(f"decisionLog.file: {path} cannot be written: {trouble}")


class LogFile:
    """The current file. After `give_up` nothing is written until the next `begin`."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._open: BinaryIO | None = None
        self._is_first = True
        self._began_with = 0
        self._size = 0

    @property
    def is_done(self) -> bool:
        """Full, or given up. The snapshot at the beginning does not count: it may exceed the limit."""
        return self._open is None or self._size - self._began_with > self._most_bytes

    def begin(self, lines: Iterable[Line]) -> None:
        """Begin a new file. A new process continues the previous process's file while there is room, so that restarts
        never lose earlier lines."""
        self.give_up()
        goes_on, self._is_first = self._is_first and self._has_room(), False
        if not goes_on and self._path.exists() and self._path.stat().st_size:
            self._path.replace(f"{self._path}.1")
        self._open = os.fdopen(os.open(self._path, _APPEND, _ONLY_OURS), "ab")
        self._size = before = self._open.tell()
        for line in lines:
            self.write(line)
        self._began_with = self._size - before

    def write(self, line: Line) -> None:
        if self._open is not None:
            text = msgspec.json.encode(line) + b"\n"
            self._open.write(text)
            self._size += len(text)

    def flush(self) -> None:
        if self._open is not None:
            self._open.flush()

    def give_up(self) -> None:
        if self._open is not None:
            file, self._open = self._open, None
            with suppress(OSError):  # the rest may no longer fit on the disk
                file.close()

    def _has_room(self) -> bool:
        """Whether a previous process's log can take more. Cuts off a last line that a kill left incomplete."""
        if not self._path.exists() or self._path.stat().st_size >= self._most_bytes:
            return False
        with self._path.open("rb+") as file:
            if not is_beginning(file.readline()):
                return False
            file.truncate(_end_of_lines(file))
        return True


def _end_of_lines(file: BinaryIO) -> int:
    """Where the last complete line ends."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _BLOCK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
