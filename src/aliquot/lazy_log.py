"""A logger that imports structlog with its first line, or never. Programs that log nothing start faster without it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_is_silenced = False


@contextmanager
def silenced() -> Iterator[None]:
    """Let no line through meanwhile: for programs whose output is for people, and tells these things itself."""
    global _is_silenced
    _is_silenced = True
    try:
        yield
    finally:
        _is_silenced = False


class LazyLogger:
    def __getattr__(self, level: str) -> Any:
        """The method that logs at a level."""
        if _is_silenced:
            return _nothing
        import structlog

        return getattr(structlog.get_logger(), level)


def _nothing(*_: Any, **__: Any) -> None:
    pass
