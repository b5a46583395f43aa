"""Keeps libraries from loading what the agent never uses. There is an agent on every GPU node, so its memory counts.

Measured with 8 cards and 100 pods (`make bench ONLY=agent`); each function says what it saves.
"""

import ctypes
import sys

_ARENAS = -8
_OWN_MAPPING_FROM = -3
"""glibc's numbers of M_ARENA_MAX and M_MMAP_THRESHOLD."""


def prepare() -> None:
    """Call this before anything imports structlog."""
    _import_structlog_without_rich()
    _set_up_malloc()


def _import_structlog_without_rich() -> None:
    """3 MB. structlog imports rich wherever it is installed, for its output on terminals."""
    if {"rich", "structlog"} & sys.modules.keys():
        return  # too late
    sys.modules["rich"] = None  # type: ignore[assignment]  # so that importing it fails, as if it were not installed
    try:
        import structlog  # noqa: F401  # for its effect
    finally:
        del sys.modules["rich"]


def _set_up_malloc() -> None:
    """2 MB. By default glibc's malloc keeps an arena for each of gRPC's threads. It also keeps freed blocks of some
    100 kB, such as the buffers of TLS connections, once it has seen a few of them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        mallopt(_ARENAS, 1)
        mallopt(_OWN_MAPPING_FROM, 2**17)
