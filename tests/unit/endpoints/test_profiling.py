"""Profiles of this process. What a recording must observe ends it, not a clock."""

import threading
import time
import tracemalloc
from concurrent.futures import Future, ThreadPoolExecutor

from aliquot.endpoints.pprof import Profile
from aliquot.endpoints.profiling import allocations, cpu_profile

_FOR_EVER = 300.0
_WORK = 0.05


class Watch:
    """A clock that does not advance, and reports that it was read."""

    def __init__(self) -> None:
        self.read = threading.Event()

    def __call__(self) -> float:
        self.read.set()
        return 0.0


def work_hard(recording: Future[Profile], watch: Watch, ended: threading.Event) -> None:
    """Work from before the first sample until after the last."""
    watch.read.wait()
    began = time.thread_time()
    while not recording.done():
        if time.thread_time() - began > _WORK:
            ended.set()


def working(profile: Profile) -> int:
    """The CPU time charged to `work_hard`."""
    found = (v[-1] for stack, v in profile.samples.items() if any(one.function == "work_hard" for one in stack))
    return sum(found)


def test_a_cpu_profile_finds_the_busy_function() -> None:
    ended, watch = threading.Event(), Watch()
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(cpu_profile, _FOR_EVER, ended, watch)
        work_hard(recording, watch, ended)
    assert working(recording.result()) > 0


def test_a_thread_started_during_the_recording_is_profiled_from_its_start() -> None:
    ended, watch = threading.Event(), Watch()
    with ThreadPoolExecutor(2) as pool:
        recording = pool.submit(cpu_profile, _FOR_EVER, ended, watch)
        watch.read.wait()
        pool.submit(work_hard, recording, watch, ended).result()
    assert working(recording.result()) > _WORK * 1e9 / 2


def test_the_last_sample_is_taken_even_if_the_machine_stalls_for_the_whole_recording() -> None:
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
    assert recording.result().seconds == 1000.0
    assert recording.result().samples


def test_allocations_during_the_recording_are_shown_by_line() -> None:
    kept: list[bytearray] = []

    def allocate() -> None:
        while not tracemalloc.is_tracing():
            time.sleep(0)
        kept.extend(bytearray(1000) for _ in range(100))

    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(allocations, _FOR_EVER, ended)
        allocate()
        ended.set()
    samples = recording.result().samples
    assert max(values[-1] for stack, values in samples.items() if stack[0].file == __file__) >= 100_000
