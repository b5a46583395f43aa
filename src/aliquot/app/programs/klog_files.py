"""Where klog's lines go: standard error, one file, or a file for each severity, changed for a new one when large."""

import getpass
import os
import platform
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TextIO

from aliquot.app.programs.klog_flags import KlogSettings
from aliquot.errors import BadConfig

SEVERITIES = ("INFO", "WARNING", "ERROR", "FATAL")
_BUFFER = 256 * 1024
_LONGEST_WAIT = 86_400.0


class KlogFiles:
    """May be written to from any thread. Raises BadConfig on entering if its folder cannot be written."""

    def __init__(
        self,
        program: str,
        settings: KlogSettings,
        *,
        now: Callable[[], datetime] = datetime.now,
        stderr: TextIO | None = None,
    ) -> None:
        self._program = program
        self._settings = settings
        self._now = now
        self._stderr = stderr or sys.stderr
        self._files: dict[int, _File] = {}
        self._is_stuck = False
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._flusher = threading.Thread(target=self._flush_often, name="log flusher", daemon=True)

    def __enter__(self) -> Self:
        if not self._settings.to_stderr:
            self._require_a_place()
            self._flusher.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._ends.set()
        if self._flusher.is_alive():
            self._flusher.join()
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _require_a_place(self) -> None:
        """Raises BadConfig."""
        file = self._settings.file
        if file and os.access(file, os.F_OK):
            if not os.access(file, os.W_OK) or Path(file).is_dir():
                raise BadConfig(f"the log file {file} cannot be written")
            return
        folder = Path(file).parent if file else self._folder()
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise BadConfig(f"log files cannot be written to the folder {folder}")

    def write(self, severity: int, line: str) -> None:
        settings = self._settings
        with self._lock:
            if settings.to_stderr or settings.also_to_stderr or severity >= settings.stderr_threshold:
                self._stderr.write(line)
                self._stderr.flush()
            if not settings.to_stderr:
                self._write_files(severity, line)

    def _write_files(self, severity: int, line: str) -> None:
        own_only = self._settings.one_output or self._settings.file
        place = 0 if self._settings.file else severity
        try:
            for one in (place,) if own_only else range(severity + 1):
                self._open(one).write(line)
        except OSError as error:  # a full disk must not stop the scheduling of pods
            self._stderr.write(f"log: {error.strerror}: {line}")

    def _open(self, severity: int) -> "_File":
        file = self._files.get(severity)
        if file is None:
            file = self._files[severity] = _File(self._path(severity), self._heading, self._settings.file_mb)
            self._link(severity, file.path)
        elif file.is_full and self._makes_room(file):
            file.close()
            del self._files[severity]
            return self._open(severity)
        return file

    def _makes_room(self, file: "_File") -> bool:
        """A file with a name of its own gets another for the next to begin; where the folder does not allow that, it
        grows on."""
        if self._settings.file and not self._is_stuck:
            try:
                file.path.replace(file.path.with_name(f"{file.path.name}.1"))
            except OSError:
                self._is_stuck = True
        return not self._is_stuck

    def _path(self, severity: int) -> Path:
        if self._settings.file:
            return Path(self._settings.file)
        host = socket.gethostname().partition(".")[0] or "unknownhost"
        when = self._now().strftime("%Y%m%d-%H%M%S")
        stem = f"{self._program}.{host}.{_user()}.log.{SEVERITIES[severity]}.{when}.{os.getpid()}"
        taken = (self._folder() / stem, *(self._folder() / f"{stem}.{number}" for number in range(1, 1000)))
        return next((path for path in taken if not path.exists()), taken[0])

    def _link(self, severity: int, path: Path) -> None:
        if self._settings.file:
            return
        with suppress(OSError):  # a convenience, as in klog
            link = path.parent / f"{self._program}.{SEVERITIES[severity]}"
            link.unlink(missing_ok=True)
            link.symlink_to(path.name)

    def _folder(self) -> Path:
        return Path(self._settings.folder or tempfile.gettempdir())

    def _heading(self) -> str:
        if self._settings.skip_headings:
            return ""
        built = f"{platform.python_implementation()} {platform.python_version()} for linux/{platform.machine()}"
        return (
            f"Log file created at: {self._now():%Y/%m/%d %H:%M:%S}\n"
            f"Running on machine: {socket.gethostname()}\n"
            f"Binary: Built with {built}\n"
            "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n"
        )

    def _flush_often(self) -> None:
        while not self._ends.wait(min(self._settings.flush_seconds or _LONGEST_WAIT, _LONGEST_WAIT)):
            with self._lock:
                for file in self._files.values():
                    with suppress(OSError):
                        file.flush()


class _File:
    def __init__(self, path: Path, heading: Callable[[], str], most_mb: int) -> None:
        self.path = path
        self._most = most_mb * 2**20
        self._file: IO[bytes] = path.open("ab", buffering=_BUFFER)
        self._size = path.stat().st_size
        self.write(heading())

    @property
    def is_full(self) -> bool:
        return 0 < self._most <= self._size

    def write(self, line: str) -> None:
        piece = line.encode(errors="replace")
        self._size += len(piece)
        self._file.write(piece)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        return "unknownuser"
