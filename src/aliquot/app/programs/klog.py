"""klog's flags and lines. Of the flags, verbosity and destination count; the rest are accepted and have no effect."""

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from io import RawIOBase
from pathlib import Path, PurePath
from typing import Any

import msgspec
import structlog
from structlog.processors import CallsiteParameter, CallsiteParameterAdder
from structlog.typing import EventDict, Processor

import aliquot
from aliquot.app.programs.command_line import Flag, Parsed, idle_flag
from aliquot.app.programs.values import BOOL, DURATION, LEVEL, MODULES, SEVERITY, SIZE, TEXT
from aliquot.config.declaration import Given
from aliquot.errors import BadConfig
from aliquot.logs import DEBUG_VERBOSITY, Form, verbosity_of
from aliquot.plain import why

_NOT_ROTATED = "Aliquot does not rotate log files"
_ONE_FILE = "Aliquot writes one log file, without a header"
_ONE_FORM = "log lines have only one format"

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
    idle_flag("log-file-max-size", _NOT_ROTATED, SIZE, "1800"),
    idle_flag("log-flush-frequency", "Aliquot writes every line immediately", DURATION, "5s"),
    idle_flag("one-output", _ONE_FILE, BOOL),
    idle_flag("skip-log-headers", _ONE_FILE, BOOL),
    idle_flag("skip-headers", _ONE_FORM, BOOL),
    idle_flag("add-dir-header", _ONE_FORM, BOOL),
    idle_flag("log-backtrace-at", "Aliquot logs the stack trace of every unexpected error", TEXT, ":0"),
)

_SEVERITIES = {"warning": 1, "error": 2, "critical": 2}
_PACKAGE = Path(aliquot.__file__).parent
_NOT_PAIRS = frozenset(("event", "level", "pathname", "lineno", "exception", "stack", "timestamp"))


def given(parsed: Parsed) -> dict[str, Given]:
    """The log level as a key of the configuration, if a flag sets it. The verbosity decides which debug lines are
    written."""
    written = [parsed.written[name] for name in ("v", "vmodule") if name in parsed.written]
    highest = max(parsed["v"], *(level for _, level in parsed["vmodule"]), 0)
    level = "debug" if highest >= DEBUG_VERBOSITY else "info"
    return {"log.level": Given(level, ", ".join(written))} if written else {}


@contextmanager
def form(program: str, parsed: Parsed) -> Iterator[Form]:
    """The form of log lines that the flags ask for, while the block runs. Raises BadConfig."""
    threshold = 0 if parsed["alsologtostderr"] else parsed["stderrthreshold"]
    with nullcontext() if parsed["logtostderr"] else _open(_log_file(program, parsed)) as file:
        logger = logging.Logger("klog")
        logger.addHandler(_Output(file, threshold))
        where = CallsiteParameterAdder([CallsiteParameter.PATHNAME, CallsiteParameter.LINENO])
        yield Form((where, _verbosity(parsed)), _render, lambda *_: logger, _Output(file, threshold))


def _log_file(program: str, parsed: Parsed) -> Path:
    """The one log file. By default it has the name of klog's link to its file with all severities."""
    return Path(parsed["log-file"] or Path(parsed["log-dir"] or tempfile.gettempdir(), f"{program}.INFO"))


def _open(path: Path) -> RawIOBase:
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        reason = why(error) if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise BadConfig(f"the log file {path} cannot be written: {reason}") from error


class _Output(logging.Handler):
    """Writes lines to standard error, or to the file and those of high severity to both."""

    def __init__(self, file: RawIOBase | None, threshold: int) -> None:
        super().__init__()
        self._file = file
        self._threshold = threshold
        self._stderr = sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if self._file is None or _SEVERITIES.get(record.levelname.lower(), 0) >= self._threshold:
            self._stderr.write(line)
            self._stderr.flush()
        if self._file is not None:
            try:
                self._file.write(line.encode(errors="replace"))
            except OSError as error:  # a full disk must not stop the scheduling of pods
                self._stderr.write(f"log: {error.strerror}: {line}")


def _verbosity(parsed: Parsed) -> Processor:
    """Drops lines that are too verbose for their file."""

    modules: tuple[tuple[str, int], ...] = parsed["vmodule"]

    @cache
    def level(path: str) -> int:
        return max(int(parsed["v"]), next((level for pattern, level in modules if _matches(pattern, path)), 0))

    def drop_verbose(_: Any, __: str, event: EventDict) -> EventDict:
        if verbosity_of(event) > level(str(event.get("pathname", ""))):
            raise structlog.DropEvent
        event.pop("v", None)
        return event

    return drop_verbose


def _matches(pattern: str, path: str) -> bool:
    """Match the name of a file without its suffix or, if the pattern has a slash, its path within our package."""
    file = PurePath(path)
    if "/" not in pattern:
        return fnmatchcase(file.stem, pattern)
    inside = file.relative_to(_PACKAGE) if file.is_relative_to(_PACKAGE) else file
    return fnmatchcase(str(inside.with_suffix("")), pattern)


def _render(_: Any, __: str, event: EventDict) -> str:
    letter = "IWE"[_SEVERITIES.get(str(event.get("level")), 0)]
    file = PurePath(str(event.get("pathname", "???"))).name
    header = f"{letter}{datetime.now():%m%d %H:%M:%S.%f} {os.getpid():7d} {file}:{event.get('lineno', 1)}]"
    pairs = [f"{name}={_quoted(value)}" for name, value in event.items() if name not in _NOT_PAIRS]
    after = [str(event[name]) for name in ("exception", "stack") if event.get(name)]
    return "\n".join((" ".join((header, _quoted(event["event"]), *pairs)), *after)).rstrip("\n") + "\n"


def _quoted(value: Any) -> str:
    """JSON, as klog writes structures."""
    return msgspec.json.encode(value, enc_hook=str).decode()
