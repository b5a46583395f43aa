"""Looking into this process: where its time and memory go, and what its tasks and threads wait for."""

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
    """Looks at every thread 100 times a second, and puts the CPU time that it used since down to where it is now.

    Blocks for so long, or until the event is set: run it in a thread.
    """
    found: dict[Stack, list[int]] = defaultdict(lambda: [0, 0])
    used = {number: _cpu_nanoseconds(number) for number in _all_native_ids()}
    began, start, own = time.time(), monotonic(), threading.get_native_id()
    over = False
    while not over:
        over = ended.wait(1 / HERTZ) or monotonic() - start >= seconds  # the last look is for what was used until then
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
    """What was allocated within some seconds, and is still in use. Blocks for so long: run it in a thread."""
    began = time.time()
    tracemalloc.start(_KEPT_FRAMES)
    try:
        ended.wait(seconds)
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    found: dict[Stack, list[int]] = defaultdict(lambda: [0, 0])
    for one in snapshot.statistics("traceback"):
        frames = tuple(Frame(Path(at.filename).stem, at.filename, at.lineno) for at in reversed(one.traceback))
        found[frames][0] += one.count
        found[frames][1] += one.size
    return Profile(_OBJECTS, found, 1, began, seconds)


async def objects() -> Profile:
    """What is in use now, by type: where it was made, only `allocations` can tell. Others have their turn meanwhile:
    a large cluster's mirror has millions of objects."""
    found: dict[Stack, list[int]] = defaultdict(lambda: [0, 0])
    for number, one in enumerate(gc.get_objects()):
        if not number % _OBJECTS_AT_ONCE:
            await asyncio.sleep(0)
        kind = type(one)
        sample = found[(Frame(f"{kind.__module__}.{kind.__qualname__}"),)]
        sample[0] += 1
        sample[1] += sys.getsizeof(one, 0)
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
    """Where every task and every thread is now, by name. Call it on the event loop."""
    tasks = {f"task {task.get_name()}": _awaiting(task) for task in asyncio.all_tasks()}
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = {
        f"thread {names.get(ident, 'unknown')} ({ident})": _stack(frame)
        for ident, frame in sys._current_frames().items()
    }
    return {**threads, **tasks}


def together(stacks: dict[str, Stack], name: str) -> Profile:
    """How many are at the same place."""
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
    line: int | None = at.f_lineno  # between two lines there is none
    return Frame(at.f_code.co_qualname, at.f_code.co_filename, line or 0)


def _awaiting(task: asyncio.Task[Any]) -> Stack:
    """A task that waits has no stack, but a chain of what awaits what."""
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
    """Also of threads that Python did not begin."""
    return [int(task.name) for task in Path("/proc/self/task").iterdir()]


def _cpu_nanoseconds(native_id: int) -> int:
    """Read from the kernel by number: to ask the C library for a thread that has just ended can end the process."""
    try:
        return int(Path(f"/proc/self/task/{native_id}/schedstat").read_text().split()[0])
    except (OSError, IndexError):
        return 0
