"""klog's flags and lines. Of the flags, verbosity and destination count; the rest are accepted and have no effect."""

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from io import RawIOBase
from pathlib import Path, PurePath
from typing import Any, TextIO

import msgspec
import structlog
from structlog.processors import CallsiteParameter, CallsiteParameterAdder
from structlog.typing import EventDict, Processor

import aliquot
from aliquot.app.programs.command_line import Flag, Parsed
from aliquot.app.programs.values import BOOL, DURATION, LEVEL, MODULES, SEVERITY, SIZE, TEXT, ValueKind
from aliquot.config.declaration import Given
from aliquot.errors import BadConfig
from aliquot.logs import DEBUG_VERBOSITY, Form, verbosity_of
from aliquot.plain import why

_NOT_ROTATED = "Aliquot does not rotate log files"
_ONE_FILE = "Aliquot writes one log file, without a header"
_ONE_FORM = "log lines have only one format"
_IGNORED = {
    "log-file-max-size": (_NOT_ROTATED, SIZE, "1800"),
    "log-flush-frequency": ("Aliquot writes every line immediately", DURATION, "5s"),
    "one-output": (_ONE_FILE, BOOL, ""),
    "skip-log-headers": (_ONE_FILE, BOOL, ""),
    "skip-headers": (_ONE_FORM, BOOL, ""),
    "add-dir-header": (_ONE_FORM, BOOL, ""),
    "log-backtrace-at": ("Aliquot logs the stack trace of every unexpected error", TEXT, ":0"),
}
"""Flags without effect: the reason, the kind of value and klog's default."""


def _ignored_flag(name: str, reason: str, kind: ValueKind, default: str) -> Flag:
    return Flag(name, f"Has no effect: {reason}.", kind, default)


KLOG_FLAGS = (
    Flag("logtostderr", "Log to standard error, and not to a file.", BOOL, "true"),
    Flag("alsologtostderr", "Log to standard error as well as to the file.", BOOL),
    Flag("stderrthreshold", "With a file: also write lines of this severity or higher to stderr.", SEVERITY, "2"),
    Flag(
        "v",
        "Verbosity: 0 logs events, 4 also the arguments and results of calls, 9 also their whole bodies.",
        LEVEL,
        "0",
        letter="v",
    ),
    Flag(
        "vmodule",
        "Verbosity of files that match a pattern, such as commit=4,lead*=4. A pattern with a / matches the path, such "
        "as endpoints/*=9.",
        MODULES,
    ),
    Flag("log-dir", "With --logtostderr=false: the folder of the log file, PROGRAM.INFO (default: $TMPDIR)."),
    Flag("log-file", "With --logtostderr=false: the path of the log file."),
    *(_ignored_flag(name, *ignored) for name, ignored in _IGNORED.items()),
)

_SEVERITIES = {"warning": 1, "error": 2, "critical": 2, "exception": 2}
_LETTERS = "IWEF"
_PACKAGE = Path(aliquot.__file__).parent
_NOT_PAIRS = frozenset(("event", "level", "pathname", "lineno", "exception", "stack", "timestamp"))


@dataclass(frozen=True)
class KlogSettings:
    """The flags that count."""

    to_stderr: bool = True
    also_to_stderr: bool = False
    stderr_threshold: int = 2
    verbosity: int = 0
    modules: tuple[tuple[str, int], ...] = ()
    folder: str = ""
    file: str = ""

    @property
    def log_level(self) -> str:
        """The level in our own words. The verbosity decides which debug lines are written."""
        highest = max(self.verbosity, *(level for _, level in self.modules), 0)
        return "debug" if highest >= DEBUG_VERBOSITY else "info"


def klog_settings(parsed: Parsed) -> KlogSettings:
    return KlogSettings(
        to_stderr=parsed["logtostderr"],
        also_to_stderr=parsed["alsologtostderr"],
        stderr_threshold=parsed["stderrthreshold"],
        verbosity=parsed["v"],
        modules=parsed["vmodule"],
        folder=parsed["log-dir"],
        file=parsed["log-file"],
    )


def given(parsed: Parsed) -> dict[str, Given]:
    """The log level as a key of the configuration, if a flag sets it."""
    written = [parsed.written[name] for name in ("v", "vmodule") if name in parsed.written]
    return {"log.level": Given(klog_settings(parsed).log_level, ", ".join(written))} if written else {}


def ignored(parsed: Parsed) -> Iterator[str]:
    """The flags that were given and have no effect, each with the reason."""
    for name, (reason, *_) in _IGNORED.items():
        if name in parsed.written:
            yield f"{parsed.written[name]}: {reason}"


@contextmanager
def form(program: str, parsed: Parsed) -> Iterator[Form]:
    """The form of log lines that the flags ask for, while the block runs. Raises BadConfig."""
    settings = klog_settings(parsed)
    if settings.to_stderr:
        yield klog_form(settings, Output(settings))
        return
    with _open(log_file(program, settings)) as file:
        yield klog_form(settings, Output(settings, file))


def log_file(program: str, settings: KlogSettings) -> Path:
    """The one log file. By default it has the name of klog's link to its file with all severities."""
    return Path(settings.file) if settings.file else Path(settings.folder or tempfile.gettempdir(), f"{program}.INFO")


def _open(path: Path) -> RawIOBase:
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        reason = why(error) if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise BadConfig(f"the log file {path} cannot be written: {reason}") from error


class Output:
    """Standard error and the file. May be written to from any thread."""

    def __init__(self, settings: KlogSettings, file: RawIOBase | None = None, stderr: TextIO | None = None) -> None:
        self._settings = settings
        self._file = file
        self._stderr = stderr or sys.stderr
        self._lock = threading.Lock()

    def write(self, severity: int, line: str) -> None:
        also = self._settings.also_to_stderr or severity >= self._settings.stderr_threshold
        with self._lock:
            if self._file is None or also:
                self._stderr.write(line)
                self._stderr.flush()
            if self._file is not None:
                try:
                    self._file.write(line.encode(errors="replace"))
                except OSError as error:  # a full disk must not stop the scheduling of pods
                    self._stderr.write(f"log: {error.strerror}: {line}")


def klog_form(settings: KlogSettings, output: Output) -> Form:
    lines = _Lines(settings)
    before: tuple[Processor, ...] = (
        CallsiteParameterAdder([CallsiteParameter.PATHNAME, CallsiteParameter.LINENO]),
        lines.drop_verbose,
    )
    return Form(before, _render, lambda *_: _Logger(output), _LibraryHandler(output))


class _Lines:
    def __init__(self, settings: KlogSettings) -> None:
        self._settings = settings
        self._levels: dict[str, int] = {}
        """By file, since few files log most lines."""

    def drop_verbose(self, _: Any, __: str, event: EventDict) -> EventDict:
        if verbosity_of(event) > self._level(str(event.get("pathname", ""))):
            raise structlog.DropEvent
        event.pop("v", None)
        return event

    def _level(self, path: str) -> int:
        if path not in self._levels:
            found = (level for pattern, level in self._settings.modules if _matches(pattern, path))
            self._levels[path] = max(self._settings.verbosity, next(found, 0))
        return self._levels[path]


def _render(_: Any, __: str, event: EventDict) -> str:
    text = " ".join((_quoted(event["event"]), *_pairs(event)))
    after = [str(event[name]) for name in ("exception", "stack") if event.get(name)]
    return "\n".join((_header(event) + text, *after)).rstrip("\n") + "\n"


def _header(event: EventDict) -> str:
    letter = _LETTERS[_SEVERITIES.get(str(event.get("level")), 0)]
    file = PurePath(str(event.get("pathname", "???"))).name
    return f"{letter}{datetime.now():%m%d %H:%M:%S.%f} {os.getpid():7d} {file}:{event.get('lineno', 1)}] "


def _matches(pattern: str, path: str) -> bool:
    """Match the name of a file without its suffix or, if the pattern has a slash, its path within our package."""
    file = PurePath(path)
    if "/" not in pattern:
        return fnmatchcase(file.stem, pattern)
    inside = file.relative_to(_PACKAGE) if file.is_relative_to(_PACKAGE) else file
    return fnmatchcase(str(inside.with_suffix("")), pattern)


def _pairs(event: EventDict) -> Sequence[str]:
    return [f"{name}={_quoted(value)}" for name, value in event.items() if name not in _NOT_PAIRS]


def _quoted(value: Any) -> str:
    """Numbers as they are, everything else as JSON, as klog does with structures."""
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return msgspec.json.encode(value, enc_hook=str).decode()


class _Logger:
    """Receives structlog's lines, by level."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def info(self, line: str) -> None:
        self._output.write(0, line)

    def warning(self, line: str) -> None:
        self._output.write(1, line)

    def error(self, line: str) -> None:
        self._output.write(2, line)

    debug = msg = info
    warn = warning
    critical = exception = fatal = failure = err = error


class _LibraryHandler(logging.Handler):
    """Receives what libraries log through the standard library."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        severity = 2 if record.levelno >= logging.ERROR else 1 if record.levelno >= logging.WARNING else 0
        self._output.write(severity, self.format(record))
