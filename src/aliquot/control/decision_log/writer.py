"""The decision log: events and decisions of the cluster state, written for replay.

A separate thread encodes and writes, so that a slow disk delays no decision. Lines that cannot be written are lost, and
an error is logged. The log then continues in a new file, which begins with a full snapshot and is complete again. A new
process continues the previous process's file, and writes a full snapshot there first.
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
from aliquot.control.decision_log.format import VERSION, Header, Line, first_lines
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Decided, Snapshot, StateEvent
from aliquot.model.bounds import MAX_UNWRITTEN_DECISIONS

_log = structlog.get_logger()

_MB = 1_000_000
_SECONDS_BETWEEN_FILES = 10.0
"""Even for small files: the snapshot at the beginning walks the whole cluster state."""


class DecisionLog:
    """`with DecisionLog(...)` records the events of the cluster state."""

    def __init__(self, path: Path, cluster: ClusterState, *, most_mb: int = 64, clock: Clock | None = None) -> None:
        self._path = path
        self._cluster = cluster
        self._most_bytes = most_mb * _MB
        self._clock = clock or SystemClock()
        prefixes = {dialect.name: dialect.prefix for dialect in cluster.dialects.values()}
        self._header = Header(VERSION, aliquot.__version__, prefixes)
        self._waiting: SimpleQueue[tuple[int, StateEvent | Decided | Snapshot] | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name="decision-log", daemon=True)
        self._begun = 0
        """Files begun here; the writer may still be at an earlier file."""
        self._last_done = 0
        """The number of the last file that the writer filled or gave up."""
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
        """Number of queued items."""
        return self._waiting.qsize()

    # -- in the thread of the cluster state

    def record(self, event: StateEvent | Decided) -> None:
        if not self._has_gap:
            self._waiting.put((self._clock.wall_ns(), event))
        if self._waiting.qsize() > MAX_UNWRITTEN_DECISIONS and not self._has_gap:
            _log.error("the disk is too slow for the decision log, dropping entries", file=str(self._path))
            self._has_gap = True
        if (self._has_gap or self._last_done == self._begun) and self._may_begin():
            self.begin_file()

    def begin_file(self) -> None:
        """Continue in a new file. It begins with a snapshot taken now, so every earlier event must have been
        recorded."""
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
            at, event = item
            try:
                if isinstance(event, Snapshot):
                    number += 1
                    file.begin(Line(at, line) for line in first_lines(self._header, event))
                else:
                    file.write(Line(at, event))
                if self._waiting.empty():
                    file.flush()
            except OSError as error:
                _log.error("cannot write the decision log", file=str(self._path), error=str(error))
                file.give_up()
            if file.is_done:
                self._last_done = number
        file.give_up()
