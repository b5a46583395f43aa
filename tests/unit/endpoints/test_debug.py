"""What a process tells about itself. Every recording is ended by what it is to see, not by a clock."""

import re
import threading
import time
import tracemalloc
from concurrent.futures import Future, ThreadPoolExecutor

from aliquot.endpoints.debug import cpu_profile, heap

_FOR_EVER = 300.0
_WORK = 0.05


class Watch:
    """A clock that stands, and tells that it was read."""

    def __init__(self) -> None:
        self.read = threading.Event()

    def __call__(self) -> float:
        self.read.set()
        return 0.0


def work_hard(recording: Future[str], watch: Watch, ended: threading.Event) -> None:
    """Works from before the recording's first look to after its last one."""
    watch.read.wait()
    began = time.thread_time()
    while not recording.done():
        if time.thread_time() - began > _WORK:
            ended.set()


def working(profile: str) -> int:
    """The CPU time that was put down to hard work."""
    return sum(int(line.rpartition(" ")[2]) for line in profile.splitlines() if f";work_hard ({__file__}:" in line)


def test_a_cpu_profile_finds_who_works() -> None:
    ended, watch = threading.Event(), Watch()
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(cpu_profile, _FOR_EVER, ended, watch)
        work_hard(recording, watch, ended)
    assert working(recording.result()) > 0


def test_a_thread_that_began_meanwhile_is_seen_from_its_first_moment() -> None:
    ended, watch = threading.Event(), Watch()
    with ThreadPoolExecutor(2) as pool:
        recording = pool.submit(cpu_profile, _FOR_EVER, ended, watch)
        watch.read.wait()
        pool.submit(work_hard, recording, watch, ended).result()
    assert working(recording.result()) > _WORK * 1e9 / 2


def test_a_machine_that_stands_still_for_the_whole_recording_costs_no_look() -> None:
    began, worked = threading.Event(), threading.Event()

    def standing_still() -> float:
        if began.is_set():
            worked.wait()
            return 1000.0
        began.set()
        return 0.0

    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(cpu_profile, 1.0, threading.Event(), standing_still)
        began.wait()
        enough = time.thread_time() + _WORK
        while time.thread_time() < enough:
            pass
        worked.set()
    assert sum(int(line.rpartition(" ")[2]) for line in recording.result().splitlines()) >= _WORK * 1e9


def test_what_was_allocated_meanwhile_and_is_kept_is_shown_by_line() -> None:
    kept: list[bytearray] = []

    def allocate() -> None:
        while not tracemalloc.is_tracing():
            time.sleep(0)
        kept.extend(bytearray(1000) for _ in range(100))

    while tracemalloc.is_tracing():  # a thread of an earlier test may still be at its end
        time.sleep(0)
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(heap, _FOR_EVER, ended)
        allocate()
        ended.set()
    lines, _, types = recording.result().partition("\n\n")
    ours = [line for line in lines.splitlines() if line.startswith(f"{__file__}:")]
    sizes = [float(found[1]) for line in ours if (found := re.search(r"size=([\d.]+) KiB", line))]
    assert max(sizes, default=0.0) * 1024 >= 100_000, ours
    assert "\nbuiltins.tuple: " in f"\n{types}"
