"""Many runs, over processes."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context, parent_process
from signal import SIG_IGN, SIGINT, signal
from threading import Thread
from types import TracebackType

from aliquot.simulate.policy_names import PolicyPair
from aliquot.simulate.results import RunResult
from aliquot.simulate.run import run
from aliquot.simulate.scenario import Order, World

Heard = Callable[[RunResult], None]


@dataclass(frozen=True)
class Task:
    """A run in one of the runner's worlds, or in what is left of it `without` some nodes."""

    order: Order
    policy: PolicyPair
    know_workload: bool = False
    world: int = 0
    variant: str = ""
    without: frozenset[str] = frozenset()
    may_fail: frozenset[int] | None = None
    """The run ends when another arrival fails."""


class Runner:
    """Runs tasks in up to `jobs` processes, which have the worlds already: tasks are small. Use it as a context
    manager."""

    def __init__(self, worlds: Sequence[World], jobs: int = 1) -> None:
        self._worlds = worlds
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pool is not None:
            if error is not None:  # nobody waits for runs that were given up
                for child in active_children():
                    child.terminate()
            self._pool.shutdown(cancel_futures=True)

    def run(self, tasks: Sequence[Task], done: Heard | None = None) -> list[RunResult]:
        """The results in the order of the tasks. `done` hears of each as it comes."""
        if self.jobs == 1 or (len(tasks) == 1 and self._pool is None):
            return [_told(_run(self._worlds, task), done) for task in tasks]
        if self._pool is None:
            # fresh interpreters: a fork would copy the locks of threads
            self._pool = ProcessPoolExecutor(self.jobs, get_context("spawn"), _enter, (self._worlds,))
        futures = [self._pool.submit(_run_here, task) for task in tasks]
        for future in as_completed(futures):
            _told(future.result(), done)
        return [future.result() for future in futures]


def _told(result: RunResult, done: Heard | None) -> RunResult:
    if done is not None:
        done(result)
    return result


_worlds: Sequence[World]
"""Of a worker process."""


def _enter(worlds: Sequence[World]) -> None:
    global _worlds
    signal(SIGINT, SIG_IGN)  # Ctrl-C is for the process that started this one
    Thread(target=_end_with_parent, daemon=True).start()
    _worlds = worlds


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "this is a worker"
    parent.join()
    os._exit(1)


def _run_here(task: Task) -> RunResult:
    return _run(_worlds, task)


def _run(worlds: Sequence[World], task: Task) -> RunResult:
    world, order = worlds[task.world], task.order
    if task.without:
        kept = [place for place, node in enumerate(world.nodes) if node.name not in task.without]
        world = World([world.nodes[place] for place in kept], world.pods)
        order = replace(order, ranks=[order.ranks[place] for place in kept] if order.ranks else ())
    result = run(world, order, task.policy, know_workload=task.know_workload, may_fail=task.may_fail)
    return replace(result, variant=task.variant)
