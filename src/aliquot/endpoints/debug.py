"""/debug/pprof/: the paths of Go's net/http/pprof, with Python's equivalents.

As in Go, a profile is in the format of `go tool pprof`. With `debug=1` it is text: a line for each stack, which flame
graph tools read.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qs

from aliquot.endpoints import asgi, profiling
from aliquot.endpoints.pprof import Profile, Stack, collapsed, encoded
from aliquot.errors import BadInput, Refused
from aliquot.model.bounds import LONGEST_PROFILE

_PREFIX = "/debug/pprof"
_PROFILE_SECONDS = 30.0
_ABOUT = {
    "allocs": "the same as heap",
    "block": "empty: Python does not measure it",
    "cmdline": "the command line",
    "goroutine": "stacks of all asyncio tasks and threads; debug=2 also names them",
    "heap": "objects in use by type; seconds=N shows allocations during that time by line",
    "mutex": "empty: Python does not measure it",
    "profile": f"CPU time for seconds=N (default {_PROFILE_SECONDS:g}, at most {LONGEST_PROFILE:g})",
    "symbol": "empty: profiles contain the function names",
    "threadcreate": "stacks of all threads",
    "trace": "not available in Python",
}


class _BadQuestion(BadInput):
    """An invalid number of seconds."""


class _Busy(Refused):
    """Another recording is running."""


class Debugger:
    """Profiles of this process. Create a single instance: only one recording can run at a time."""

    def __init__(self) -> None:
        self._recording = ""

    def routes(self) -> Mapping[tuple[str, str], asgi.Handler]:
        pages: dict[str, asgi.Handler] = {
            "": self._index,
            "cmdline": self._command_line,
            "symbol": self._symbol,
            "trace": self._trace,
            "profile": self._profile,
            "heap": self._heap,
            "allocs": self._heap,
            "goroutine": self._goroutine,
            "threadcreate": self._threads,
            "block": self._nothing,
            "mutex": self._nothing,
        }
        table = {("GET", f"{_PREFIX}/{name}".rstrip("/")): _careful(page) for name, page in pages.items()}
        table["POST", f"{_PREFIX}/symbol"] = _careful(self._symbol)  # pprof sends POST
        return table

    async def _index(self, _: asgi.Call) -> asgi.Response:
        rows = "".join(
            f'<tr><td><a href="{_PREFIX}/{name}?debug=1">{name}</a></td><td>{about}</td></tr>\n'
            for name, about in _ABOUT.items()
        )
        page = f"<html><head><title>{_PREFIX}/</title></head><body>\n<table>\n{rows}</table>\n</body></html>\n"
        return asgi.Response(page.encode(), content_type=b"text/html; charset=utf-8")

    async def _command_line(self, _: asgi.Call) -> asgi.Response:
        return asgi.text("\0".join(sys.argv))

    async def _symbol(self, _: asgi.Call) -> asgi.Response:
        return asgi.text("num_symbols: 0\n")

    async def _trace(self, _: asgi.Call) -> asgi.Response:
        return asgi.text("Python has no execution tracer like Go's; use profile instead\n", 501)

    async def _nothing(self, call: asgi.Call) -> asgi.Response:
        if _debug(call):
            return asgi.text("Python does not measure how long threads wait for each other\n")
        return _shown(call, Profile((("contentions", "count"), ("delay", "nanoseconds"))))

    async def _goroutine(self, call: asgi.Call) -> asgi.Response:
        found = profiling.running()
        return asgi.text(_one_by_one(found)) if _debug(call) > 1 else _shown(call, profiling.together(found, "tasks"))

    async def _threads(self, call: asgi.Call) -> asgi.Response:
        found = {name: stack for name, stack in profiling.running().items() if name.startswith("thread ")}
        return asgi.text(_one_by_one(found)) if _debug(call) > 1 else _shown(call, profiling.together(found, "threads"))

    async def _heap(self, call: asgi.Call) -> asgi.Response:
        if seconds := _seconds(call, 0.0):
            profile = await self._record("heap", profiling.allocations, seconds)
        else:
            with self._alone("heap"):
                profile = await profiling.objects()
        return _shown(call, profile, profiling.memory_words())

    async def _profile(self, call: asgi.Call) -> asgi.Response:
        return _shown(call, await self._record("profile", profiling.cpu_profile, _seconds(call, _PROFILE_SECONDS)))

    async def _record(self, name: str, record: Callable[[float, threading.Event], Profile], seconds: float) -> Profile:
        """Record until the time is over or the call ends. Raises _Busy."""
        ended = threading.Event()
        with self._alone(name):
            try:
                return await asyncio.to_thread(record, seconds, ended)
            finally:
                ended.set()

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Raises _Busy."""
        if self._recording:
            raise _Busy(f"Aliquot is recording {self._recording}; try again when it has finished")
        self._recording = name
        try:
            yield
        finally:
            self._recording = ""


def _careful(page: asgi.Handler) -> asgi.Handler:
    async def answer(call: asgi.Call) -> asgi.Response:
        try:
            return await page(call)
        except _BadQuestion as error:
            return asgi.text(f"{error}\n", 400)
        except _Busy as error:
            return asgi.text(f"{error}\n", 409)

    return asgi.SlowHandler(answer)


def _asked(call: asgi.Call, name: str) -> str:
    return parse_qs(call.query).get(name, [""])[-1]


def _debug(call: asgi.Call) -> int:
    text = _asked(call, "debug")
    return int(text) if text.isdecimal() else 0


def _seconds(call: asgi.Call, default: float) -> float:
    text = _asked(call, "seconds")
    if not text:
        return default
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= LONGEST_PROFILE:
        raise _BadQuestion(f"seconds={text} must be a number greater than 0 and at most {LONGEST_PROFILE:g}")
    return found


def _shown(call: asgi.Call, profile: Profile, words: str = "") -> asgi.Response:
    if _debug(call):
        return asgi.text(words + collapsed(profile))
    return asgi.Response(
        encoded(profile),
        content_type=b"application/octet-stream",
        headers=((b"content-disposition", b'attachment; filename="profile"'),),
    )


def _one_by_one(stacks: Mapping[str, Stack]) -> str:
    def block(name: str, stack: Stack) -> str:
        return f"{name}:\n" + "".join(f"\t{frame.function}\n\t\t{frame.file}:{frame.line}\n" for frame in stack)

    return "\n".join(block(name, stack) for name, stack in stacks.items())
