"""Many runs, over processes."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from signal import SIG_IGN, SIGINT, signal
from threading import Thread
from types import TracebackType

from aliquot.errors import AliquotError
from aliquot.simulate.policy_names import PolicyPair
from aliquot.simulate.results import RunResult
from aliquot.simulate.run import run
from aliquot.simulate.scenario import Scene, World

Heard = Callable[[RunResult], None]


@dataclass(frozen=True)
class Task:
    """A run of one of the runner's scenes in one of its orders, or of what is left of it `without` some nodes. All by
    number: tasks stay small."""

    policy: PolicyPair
    know_workload: bool = False
    scene: int = 0
    order: int = 0
    without: frozenset[int] = frozenset()
    may_fail: frozenset[int] | None = None
    """The run ends when another arrival fails."""


class Runner:
    """Runs tasks in up to `jobs` processes, which have the scenes already. Use it as a context manager.

    A worker that ends while a task is being sent to it stops the pool of some Python versions for good: large tasks,
    which do not fit into a pipe, would make that likely on Ctrl-C.
    """

    def __init__(self, scenes: Sequence[Scene], jobs: int = 1) -> None:
        self._scenes = scenes
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._watched, self._held = Pipe(duplex=False)
        """Workers end when the end that this process holds is closed, and at the latest with this process."""

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:  # nobody waits for runs that were given up
            self._held.close()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._held.close()
        self._watched.close()

    def run(self, tasks: Sequence[Task], done: Heard | None = None) -> list[RunResult]:
        """The results in the order of the tasks. `done` hears of each as it comes. Raises AliquotError if a process
        dies."""
        if self.jobs == 1 or (len(tasks) == 1 and self._pool is None):
            return [_told(_run(self._scenes, task), done) for task in tasks]
        if self._pool is None:
            # fresh interpreters: a fork would copy the locks of threads
            self._pool = ProcessPoolExecutor(self.jobs, get_context("spawn"), _enter, (self._scenes, self._watched))
        try:
            futures = [self._pool.submit(_run_here, task) for task in tasks]
            for future in as_completed(futures):
                _told(future.result(), done)
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            raise AliquotError(
                "a process of the simulation died, perhaps for lack of memory: use fewer --jobs"
            ) from error


def _told(result: RunResult, done: Heard | None) -> RunResult:
    if done is not None:
        done(result)
    return result


_scenes: Sequence[Scene]
"""Of a worker process."""


def _enter(scenes: Sequence[Scene], watched: "Connection[None, None]") -> None:
    global _scenes
    signal(SIGINT, SIG_IGN)  # Ctrl-C is for the process that started this one
    Thread(target=_end_with, args=(watched,), daemon=True).start()
    _scenes = scenes


def _end_with(watched: "Connection[None, None]") -> None:
    watched.poll(None)  # nothing is ever sent
    os._exit(1)


def _run_here(task: Task) -> RunResult:
    return _run(_scenes, task)


def _run(scenes: Sequence[Scene], task: Task) -> RunResult:
    scene = scenes[task.scene]
    world, order = scene.world, scene.orders[task.order]
    if task.without:
        kept = [place for place in range(len(world.nodes)) if place not in task.without]
        world = World([world.nodes[place] for place in kept], world.pods)
        order = replace(order, ranks=[order.ranks[place] for place in kept] if order.ranks else ())
    result = run(world, order, task.policy, know_workload=task.know_workload, may_fail=task.may_fail)
    return replace(result, variant=scene.variant)
