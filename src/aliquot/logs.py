"""Structured logs on standard error: readable lines on a terminal, JSON elsewhere."""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

DEBUG_VERBOSITY = 4
"""The verbosity of debug lines on klog's scale from 0 to 10. A line with a field `v` has that verbosity instead; only
programs with klog's flags write lines above this one."""


@dataclass(frozen=True)
class Form:
    """How log lines look, and where they go."""

    before: Sequence[Processor]
    """Processors that run before rendering. They may drop the event."""
    render: Processor
    factory: Callable[..., Any]
    """The logger factory for our own lines."""
    libraries: logging.Handler
    """The handler for lines that libraries log through the standard library, in the same form."""


def drop_verbose(_: Any, __: str, event: EventDict) -> EventDict:
    """Drop events that are too verbose even for debugging."""
    if verbosity_of(event) > DEBUG_VERBOSITY:
        raise structlog.DropEvent
    event.pop("v", None)
    return event


def verbosity_of(event: EventDict) -> int:
    return int(event.get("v", DEBUG_VERBOSITY if event.get("level") == "debug" else 0))


class _CurrentStderr:
    """Whatever sys.stderr is at the time of a line. The demo's live screen replaces it, to print lines above itself."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


_stderr = cast(TextIO, _CurrentStderr())
_libraries = logging.StreamHandler(_stderr)
_level = "info"


def wants_debug() -> bool:
    """Whether debug lines are written. For the hot path: asking a logger takes microseconds."""
    return _level == "debug"


def configure(level: str = "info", form: Form | None = None) -> None:
    """Configure all logging. Call it again to change the level."""
    global _level
    _level = level
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
        logger_factory=form.factory,
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
    return Form((drop_verbose,), render, structlog.PrintLoggerFactory(file=_stderr), _libraries)
