"""Structured logs on standard error: lines for people on a terminal, JSON elsewhere."""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

DEBUG_VERBOSITY = 4
"""How much must be wanted for debug lines, on klog's scale from 0 to 10. A debug line of a higher number says so
itself, as `v`: only a program that is asked for so much writes it."""


@dataclass(frozen=True)
class Form:
    """How lines look, and who takes them."""

    before: Sequence[Processor]
    """What else happens to an event before it becomes a line; it may drop it."""
    render: Processor
    taker: Callable[..., Any]
    """Makes what takes our own lines."""
    libraries: logging.Handler
    """What takes those that libraries say through the standard library's logging, in the same form."""


def quiet(_: Any, __: str, event: EventDict) -> EventDict:
    """Drops what is too much even for debugging."""
    if verbosity_of(event) > DEBUG_VERBOSITY:
        raise structlog.DropEvent
    event.pop("v", None)
    return event


def verbosity_of(event: EventDict) -> int:
    return int(event.get("v", DEBUG_VERBOSITY if event.get("level") == "debug" else 0))


class _CurrentStderr:
    """Standard error as it is when a line comes: a live picture on the terminal puts its own in that place, so that
    lines stand above it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


_stderr = cast(TextIO, _CurrentStderr())
_libraries = logging.StreamHandler(_stderr)
_wanted = "info"


def wants_debug() -> bool:
    """For the hot path: to ask a logger takes microseconds."""
    return _wanted == "debug"


def configure(level: str = "info", form: Form | None = None) -> None:
    """May be called again, to change the level."""
    global _wanted
    _wanted = level
    form = form or _standard()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        *form.before,
    ]
    structlog.configure(
        processors=[*shared, form.render],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=form.taker,
    )
    drop_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    form.libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[drop_meta, form.render])
    )
    form.libraries.setLevel(max(LEVELS[level], logging.WARNING))
    logging.getLogger().addHandler(form.libraries)


def _standard() -> Form:
    on_terminal = sys.stderr.isatty()
    render: Processor = structlog.dev.ConsoleRenderer() if on_terminal else structlog.processors.JSONRenderer()
    return Form((quiet,), render, structlog.PrintLoggerFactory(file=_stderr), _libraries)
