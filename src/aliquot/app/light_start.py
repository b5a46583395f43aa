"""Keeps libraries from loading what the agent never uses. There is an agent on every GPU node, so its memory counts.

Measured with 8 cards and 100 pods (`make bench ONLY=agent`); each function says what it saves.
"""

import ctypes
import sys

_ARENAS = -8
"""glibc's number of M_ARENA_MAX."""


def prepare() -> None:
    """Call this before anything imports structlog."""
    _import_structlog_without_rich()
    _use_one_arena()


def _import_structlog_without_rich() -> None:
    """3 MB. structlog imports rich wherever it is installed, for its output on terminals."""
    if {"rich", "structlog"} & sys.modules.keys():
        return  # too late
    sys.modules["rich"] = None  # type: ignore[assignment]  # so that importing it fails, as if it were not installed
    try:
        import structlog  # noqa: F401  # for its effect
    finally:
        del sys.modules["rich"]


def _use_one_arena() -> None:
    """1 MB. By default glibc's malloc keeps an arena for each of gRPC's threads."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        mallopt(_ARENAS, 1)
