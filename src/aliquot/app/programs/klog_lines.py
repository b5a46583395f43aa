"""Our log events as klog writes its lines, and which of them a verbosity lets through."""

import logging
import os
import traceback
from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

import msgspec
import structlog
from structlog.processors import CallsiteParameter, CallsiteParameterAdder
from structlog.typing import EventDict, Processor

import aliquot
from aliquot.app.programs.klog_files import KlogFiles
from aliquot.app.programs.klog_flags import KlogSettings
from aliquot.logs import Form, verbosity_of

_SEVERITIES = {"warning": 1, "error": 2, "critical": 2, "exception": 2}
_LETTERS = "IWEF"
_PACKAGE = Path(aliquot.__file__).parent
_OWN = frozenset(("event", "level", "pathname", "lineno", "exception", "stack"))


def klog_form(settings: KlogSettings, files: KlogFiles) -> Form:
    lines = _Lines(settings)
    before: tuple[Processor, ...] = (
        CallsiteParameterAdder([CallsiteParameter.PATHNAME, CallsiteParameter.LINENO]),
        lines.let_through,
    )
    return Form(before, lines.render, lambda *_: _Taker(files), _Libraries(files))


class _Lines:
    def __init__(self, settings: KlogSettings) -> None:
        self._settings = settings
        self._levels: dict[str, int] = {}
        """By file: the same few are asked for again and again."""

    def let_through(self, _: Any, __: str, event: EventDict) -> EventDict:
        if verbosity_of(event) > self._level(str(event.get("pathname", ""))):
            raise structlog.DropEvent
        event.pop("v", None)
        return event

    def _level(self, path: str) -> int:
        if path not in self._levels:
            found = (level for pattern, level in self._settings.modules if _matches(pattern, path))
            self._levels[path] = max(self._settings.verbosity, next(found, 0))
        return self._levels[path]

    def render(self, _: Any, __: str, event: EventDict) -> str:
        text = " ".join((_quoted(event["event"]), *_pairs(event)))
        after = [str(event[name]) for name in ("exception", "stack") if event.get(name)]
        if self._is_traced(event):
            after.append("".join(traceback.format_stack()))
        return "\n".join((self._header(event) + text, *after)).rstrip("\n") + "\n"

    def _header(self, event: EventDict) -> str:
        if self._settings.skip_headers:
            return ""
        letter = _LETTERS[_SEVERITIES.get(str(event.get("level")), 0)]
        path = PurePath(str(event.get("pathname", "???")))
        file = "/".join(path.parts[-2:]) if self._settings.with_folder else path.name
        return f"{letter}{datetime.now():%m%d %H:%M:%S.%f} {os.getpid():7d} {file}:{event.get('lineno', 1)}] "

    def _is_traced(self, event: EventDict) -> bool:
        at = self._settings.backtrace_at
        return at is not None and at == (PurePath(str(event.get("pathname", ""))).name, event.get("lineno"))


def _matches(pattern: str, path: str) -> bool:
    """A pattern is for the file's name without its ending, or with a slash for its path within our package."""
    file = PurePath(path)
    if "/" not in pattern:
        return fnmatchcase(file.stem, pattern)
    inside = file.relative_to(_PACKAGE) if file.is_relative_to(_PACKAGE) else file
    return fnmatchcase(str(inside.with_suffix("")), pattern)


def _pairs(event: EventDict) -> Sequence[str]:
    return [f"{name}={_quoted(value)}" for name, value in event.items() if name not in _OWN and name != "timestamp"]


def _quoted(value: Any) -> str:
    """Numbers as they are, everything else as JSON, as klog does with structures."""
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return msgspec.json.encode(value, enc_hook=str).decode()


class _Taker:
    """Takes lines by the name of the level, as structlog hands them over."""

    def __init__(self, files: KlogFiles) -> None:
        self._files = files

    def info(self, line: str) -> None:
        self._files.write(0, line)

    def warning(self, line: str) -> None:
        self._files.write(1, line)

    def error(self, line: str) -> None:
        self._files.write(2, line)

    debug = msg = info
    warn = warning
    critical = exception = fatal = failure = err = error


class _Libraries(logging.Handler):
    """What libraries say through the standard library's logging."""

    def __init__(self, files: KlogFiles) -> None:
        super().__init__()
        self._files = files

    def emit(self, record: logging.LogRecord) -> None:
        severity = 2 if record.levelno >= logging.ERROR else 1 if record.levelno >= logging.WARNING else 0
        self._files.write(severity, self.format(record))
