"""The decision log: what the cluster state was told and what they decided, written down so that it can be replayed.

A thread of its own encodes and writes, so that a slow disk holds up no decision. What cannot be written is lost and
said so; the log then goes on in a new file, which begins with all that the cluster state knows, and is whole again. A
process that is started goes on in the file of the one before, and tells there anew all that its cluster state knows.
"""

import threading
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

import structlog

import aliquot
from aliquot.clock import Clock, SystemClock
from aliquot.control.decision_log.file import LogFile, require_writable
from aliquot.control.decision_log.format import VERSION, Header, Line, opening
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Snapshot, StateEvent
from aliquot.model.bounds import MAX_UNWRITTEN_DECISIONS

_log = structlog.get_logger()

_MB = 1_000_000
_SECONDS_BETWEEN_FILES = 10.0
"""However small a file may be: its beginning costs a walk over all that the cluster state knows."""


class DecisionLog:
    """`with DecisionLog(...)` records what happens to the cluster state."""

    def __init__(self, path: Path, cluster: ClusterState, *, most_mb: int = 64, clock: Clock | None = None) -> None:
        self._path = path
        self._cluster = cluster
        self._most_bytes = most_mb * _MB
        self._clock = clock or SystemClock()
        prefixes = {dialect.name: dialect.prefix for dialect in cluster.dialects.values()}
        self._header = Header(VERSION, aliquot.__version__, prefixes)
        self._waiting: SimpleQueue[tuple[int, StateEvent | Snapshot] | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name="decision-log", daemon=True)
        self._begun = 0
        """Files that were begun here; the writer may still be at an earlier one."""
        self._last_done = 0
        """The number of the last file that the writer found full, or gave up."""
        self._last_began = 0.0
        self._has_gap = False

    def __enter__(self) -> Self:
        """Raises BadConfig if the file cannot be written."""
        require_writable(self._path)
        self._writer.start()
        self.begin_file()
        self._cluster.recorder = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.recorder = None
        self._waiting.put(None)
        self._writer.join()

    @property
    def waiting(self) -> int:
        """How much is still to be written."""
        return self._waiting.qsize()

    # -- in the thread of the cluster state

    def record(self, event: StateEvent) -> None:
        if not self._has_gap:
            self._waiting.put((self._clock.wall_ns(), event))
        if self._waiting.qsize() > MAX_UNWRITTEN_DECISIONS and not self._has_gap:
            _log.error("the disk is too slow for the decision log, leaving some out", file=str(self._path))
            self._has_gap = True
        if (self._has_gap or self._last_done == self._begun) and self._may_begin():
            self.begin_file()

    def begin_file(self) -> None:
        """Go on in a new file. What the cluster state knows now stands at its beginning, so nothing may have happened
        since that was not recorded."""
        self._begun += 1
        self._has_gap = False
        self._last_began = self._clock.monotonic()
        self._waiting.put((self._clock.wall_ns(), self._cluster.snapshot()))

    def _may_begin(self) -> bool:
        is_time = self._clock.monotonic() - self._last_began >= _SECONDS_BETWEEN_FILES
        return is_time and self._waiting.qsize() < MAX_UNWRITTEN_DECISIONS // 2

    # -- in the writing thread

    def _write_all(self) -> None:
        file, number = LogFile(self._path, self._most_bytes), 0
        while (item := self._waiting.get()) is not None:
            at, told = item
            try:
                if isinstance(told, Snapshot):
                    number += 1
                    file.begin(Line(at, line) for line in opening(self._header, told))
                else:
                    file.write(Line(at, told))
                if self._waiting.empty():
                    file.flush()
            except OSError as error:
                _log.error("cannot write the decision log", file=str(self._path), error=str(error))
                file.give_up()
            if file.is_done:
                self._last_done = number
        file.give_up()
