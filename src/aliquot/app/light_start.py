"""Keeps libraries from loading what the agent never uses. There is an agent on every GPU node, so its memory counts.

Measured with 8 cards and 100 pods (`make bench ONLY=agent`); each function says what it saves.
"""

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_ARENAS = -8
"""glibc's number of M_ARENA_MAX."""
_DONT_NEED = 4
"""Linux' number of MADV_DONTNEED."""
_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ ")
_CODE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-xp \S+ \S+ \S+ +/")
"""How a mapping begins in /proc/self/smaps, and how one with the code of a file does."""


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


def drop_code_of_the_start(smaps: Path = Path("/proc/self/smaps")) -> None:
    """3 MB. Call this when everything is loaded: much code of the libraries runs only until then. The kernel maps a
    page of it again when it is needed."""
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None or not smaps.exists():
        return
    for begin, end in unchanged_code(smaps.read_text()):
        madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONT_NEED)


def unchanged_code(smaps: str) -> Iterator[tuple[int, int]]:
    """Where the code of files is that is as in the file. Anything else would be lost."""
    code: re.Match[str] | None = None
    for line in smaps.splitlines():
        if _MAPPING.match(line):
            code = _CODE.match(line)
        elif code is not None and line.split() == ["Anonymous:", "0", "kB"]:
            yield int(code[1], 16), int(code[2], 16)
