"""/debug/pprof/: the paths of Go's net/http/pprof. A CPU profile is a line per stack, as flame graph tools read it."""

import asyncio
import gc
import sys
import threading
import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import parse_qs

from aliquot.endpoints import asgi
from aliquot.model.bounds import LONGEST_PROFILE

_HERTZ = 100


class Debugger:
    """Profiles of this process. Create a single instance: only one recording can run at a time."""

    def __init__(self) -> None:
        self._recording = ""

    def routes(self) -> Mapping[tuple[str, str], asgi.Handler]:
        handler = asgi.SlowHandler(self._answer)
        return {("GET", "/debug/pprof"): handler, ("GET", "/debug/pprof/*"): handler}

    async def _answer(self, call: asgi.Call) -> asgi.Response:
        if call.tail in _PAGES:
            return asgi.text(_PAGES[call.tail]())
        if call.tail not in _RECORDINGS:
            is_absent = call.tail in _ABSENT
            why = "Python does not measure this\n" if is_absent else "no such page; see /debug/pprof/\n"
            return asgi.text(why, 501 if is_absent else 404)
        record, default = _RECORDINGS[call.tail]
        asked = parse_qs(call.query).get("seconds", [default])[-1]
        seconds = float(asked) if asked.replace(".", "", 1).isdecimal() else 0.0
        if not 0 < seconds <= LONGEST_PROFILE:
            return asgi.text(f"seconds={asked} must be a number greater than 0 and at most {LONGEST_PROFILE:g}\n", 400)
        if self._recording:
            return asgi.text(f"Aliquot is recording {self._recording}; try again when it has finished\n", 409)
        self._recording, ended = call.tail, threading.Event()
        try:
            return asgi.text(await asyncio.to_thread(self._record, record, seconds, ended))
        finally:
            ended.set()

    def _record(self, record: Callable[[float, threading.Event], str], seconds: float, ended: threading.Event) -> str:
        """Runs in a thread, which may outlive its call."""
        try:
            return record(seconds, ended)
        finally:
            self._recording = ""


def cpu_profile(seconds: float, ended: threading.Event, monotonic: Callable[[], float] = time.monotonic) -> str:
    """Charge the CPU time between two samples, in nanoseconds, to each thread's stack. Blocks: run it in a thread."""
    found, used = Counter[str](), {thread: _cpu_time(thread) for thread in threading.enumerate()}
    start, over = monotonic(), False
    while not over:
        over = ended.wait(1 / _HERTZ) or monotonic() - start >= seconds  # the last sample covers the remaining time
        frames = sys._current_frames()
        for thread in set(threading.enumerate()) - {threading.current_thread()}:
            spent = _cpu_time(thread) - used.setdefault(thread, 0)
            if spent > 0 and (frame := frames.get(thread.ident or 0)):
                used[thread] += spent
                codes = [(at.f_code, at.f_lineno) for at, _ in traceback.walk_stack(frame)]
                found[";".join(f"{c.co_qualname} ({c.co_filename}:{line})" for c, line in reversed(codes))] += spent
    return "".join(f"{stack} {spent}\n" for stack, spent in found.most_common())


def heap(seconds: float, ended: threading.Event) -> str:
    """The lines that allocated memory within `seconds` and keep it, then the number of objects by type. Blocks: run it
    in a thread."""
    tracemalloc.start()
    try:
        ended.wait(seconds)
        lines = tracemalloc.take_snapshot().statistics("lineno")
    finally:
        tracemalloc.stop()
    types = Counter(f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.get_objects())
    return "\n".join((*map(str, lines), "", *(f"{name}: {count}" for name, count in types.most_common()), ""))


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = [(f"thread {names.get(ident)}", traceback.walk_stack(at)) for ident, at in sys._current_frames().items()]
    tasks = [(f"task {task.get_name()}", _awaits(task.get_coro())) for task in asyncio.all_tasks()]
    stacks = ((name, traceback.StackSummary.extract(frames)) for name, frames in (*threads, *tasks))
    return "\n".join(f"{name}:\n{''.join(stack.format())}" for name, stack in stacks)


def _awaits(waiting: Any) -> Iterator[tuple[FrameType, int]]:
    """The await chain of a waiting task, which has no stack: the innermost frame first, as in a thread's stack."""
    if frame := getattr(waiting, "cr_frame", None):
        yield from _awaits(waiting.cr_await)
        yield frame, frame.f_lineno


_RECORDINGS = {"profile": (cpu_profile, "30"), "heap": (heap, "1"), "allocs": (heap, "1")}
"""What to run, and for how many seconds by default."""
_PAGES = {
    "": lambda: "\n".join(("cmdline", "goroutine", *_RECORDINGS, "")),
    "cmdline": lambda: "\0".join(sys.argv),
    "goroutine": _stacks,
    "threadcreate": _stacks,
}
_ABSENT = ("block", "mutex", "symbol", "trace")


def _cpu_time(thread: threading.Thread) -> int:
    """Read it from the kernel by thread ID: the C library can crash on a thread that has just ended."""
    try:
        return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0])
    except (OSError, IndexError):
        return 0
