"""Structured logs on standard error: lines for people on a terminal, JSON elsewhere."""

import logging
import sys

import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_libraries = logging.StreamHandler(sys.stderr)
"""What libraries say through the standard library's logging, in the same form as our own lines."""


def configure(level: str = "info") -> None:
    """May be called again, to change the level."""
    on_terminal = sys.stderr.isatty()
    render: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if on_terminal else structlog.processors.JSONRenderer()
    )
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    drop_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    _libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[drop_meta, render])
    )
    _libraries.setLevel(max(LEVELS[level], logging.WARNING))
    logging.getLogger().addHandler(_libraries)
