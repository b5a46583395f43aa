"""Inspect this process: where its time and memory go, and what its tasks and threads wait for."""

import asyncio
import gc
import os
import sys
import threading
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from aliquot.endpoints.pprof import Frame, Profile, Stack

HERTZ = 100
_DEEPEST = 128
_KEPT_FRAMES = 16
_OBJECTS_AT_ONCE = 2000
_OBJECTS = (("objects", "count"), ("space", "bytes"))


def cpu_profile(seconds: float, ended: threading.Event, monotonic: Callable[[], float] = time.monotonic) -> Profile:
    """Sample every thread 100 times a second, and charge the CPU time since the last sample to its current stack.

    Blocks for `seconds`, or until the event is set: run it in a thread.
    """
    found: dict[Stack, list[int]] = defaultdict(lambda: [0, 0])
    used = {number: _cpu_nanoseconds(number) for number in _all_native_ids()}
    began, start, own = time.time(), monotonic(), threading.get_native_id()
    over = False
    while not over:
        over = ended.wait(1 / HERTZ) or monotonic() - start >= seconds  # the last sample covers the remaining time
        frames, ids = sys._current_frames(), _native_ids()
        for ident, frame in frames.items():
            number = ids.get(ident, own)
            if number == own:
                continue
            now = _cpu_nanoseconds(number)
            spent, used[number] = now - used.get(number, 0), now
            if spent > 0:
                sample = found[_stack(frame)]
                sample[0] += 1
                sample[1] += spent
    return Profile(
        (("samples", "count"), ("cpu", "nanoseconds")), found, 10**9 // HERTZ, began, round(monotonic() - start, 6)
    )


def allocations(seconds: float, ended: threading.Event) -> Profile:
    """Profile memory that was allocated within `seconds` and is still in use. Blocks that long: run it in a thread."""
    began = time.time()
    tracemalloc.start(_KEPT_FRAMES)
    try:
        ended.wait(seconds)
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    found: dict[Stack, list[int]] = defaultdict(lambda: [0, 0])
    for trace in snapshot.statistics("traceback"):
        frames = tuple(Frame(Path(at.filename).stem, at.filename, at.lineno) for at in reversed(trace.traceback))
        found[frames][0] += trace.count
        found[frames][1] += trace.size
    return Profile(_OBJECTS, found, 1, began, seconds)


async def objects() -> Profile:
    """Count the objects in use by type; only `allocations` knows their origin. Yields to other tasks: the informer
    cache of a large cluster has millions of objects."""
    found: dict[Stack, list[int]] = defaultdict(lambda: [0, 0])
    for number, item in enumerate(gc.get_objects()):
        if not number % _OBJECTS_AT_ONCE:
            await asyncio.sleep(0)
        kind = type(item)
        sample = found[(Frame(f"{kind.__module__}.{kind.__qualname__}"),)]
        sample[0] += 1
        sample[1] += sys.getsizeof(item, 0)
    return Profile(_OBJECTS, found)


def memory_words() -> str:
    """The process's memory in a few lines."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    rows = enumerate(gc.get_stats())
    collected = ", ".join(f"generation {number}: {row['collections']}" for number, row in rows)
    return (
        f"# resident: {pages * os.sysconf('SC_PAGE_SIZE')} bytes\n"
        f"# allocated blocks: {sys.getallocatedblocks()}\n"
        f"# collections: {collected}\n"
    )


def running() -> dict[str, Stack]:
    """The current stacks of all tasks and threads, by name. Call it on the event loop."""
    tasks = {f"task {task.get_name()}": _awaiting(task) for task in asyncio.all_tasks()}
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = {
        f"thread {names.get(ident, 'unknown')} ({ident})": _stack(frame)
        for ident, frame in sys._current_frames().items()
    }
    return {**threads, **tasks}


def together(stacks: dict[str, Stack], name: str) -> Profile:
    """Count equal stacks."""
    found: dict[Stack, list[int]] = defaultdict(lambda: [0])
    for stack in stacks.values():
        found[stack][0] += 1
    return Profile(((name, "count"),), found)


def _stack(frame: FrameType | None) -> Stack:
    def upwards() -> Iterator[Frame]:
        at = frame
        for _ in range(_DEEPEST):
            if at is None:
                return
            yield _frame(at)
            at = at.f_back

    return tuple(upwards())


def _frame(at: FrameType) -> Frame:
    line: int | None = at.f_lineno  # None between two lines
    return Frame(at.f_code.co_qualname, at.f_code.co_filename, line or 0)


def _awaiting(task: asyncio.Task[Any]) -> Stack:
    """The await chain of a waiting task, which has no stack."""
    found: list[Frame] = []
    at: Any = task.get_coro()
    while at is not None and len(found) < _DEEPEST:
        frame = getattr(at, "cr_frame", None) or getattr(at, "gi_frame", None) or getattr(at, "ag_frame", None)
        if frame is None:
            break
        found.append(_frame(frame))
        at = getattr(at, "cr_await", None) or getattr(at, "gi_yieldfrom", None) or getattr(at, "ag_await", None)
    return tuple(reversed(found))


def _native_ids() -> dict[int, int]:
    return {thread.ident: thread.native_id for thread in threading.enumerate() if thread.ident and thread.native_id}


def _all_native_ids() -> list[int]:
    """List thread IDs, including threads that Python did not start."""
    return [int(task.name) for task in Path("/proc/self/task").iterdir()]


def _cpu_nanoseconds(native_id: int) -> int:
    """Read CPU time from the kernel by thread ID: the C library can crash on a thread that has just ended."""
    try:
        return int(Path(f"/proc/self/task/{native_id}/schedstat").read_text().split()[0])
    except (OSError, IndexError):
        return 0
