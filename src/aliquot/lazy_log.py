"""A logger that imports structlog with its first line. Programs that log nothing start faster without it."""

from typing import Any


class LazyLogger:
    def __getattr__(self, level: str) -> Any:
        """The method that logs at a level."""
        import structlog

        return getattr(structlog.get_logger(), level)
