"""Many runs, over processes."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from aliquot.simulate.policy_names import PolicyPair
from aliquot.simulate.results import RunResult
from aliquot.simulate.run import run
from aliquot.simulate.scenario import Order, World


@dataclass(frozen=True)
class Task:
    order: Order
    policy: PolicyPair
    know_workload: bool = False


def run_all(
    world: World, tasks: Sequence[Task], jobs: int = 1, done: Callable[[RunResult], None] | None = None
) -> list[RunResult]:
    """The results in the order of the tasks. `done` hears of each as it comes."""
    if jobs == 1 or len(tasks) == 1:
        return [_told(_run(world, task), done) for task in tasks]
    # a fresh interpreter: a fork would copy threads' locks
    with ProcessPoolExecutor(min(jobs, len(tasks)), get_context("spawn"), _enter, (world,)) as pool:
        futures = [pool.submit(_run_here, task) for task in tasks]
        for future in as_completed(futures):
            _told(future.result(), done)
    return [future.result() for future in futures]


def _told(result: RunResult, done: Callable[[RunResult], None] | None) -> RunResult:
    if done is not None:
        done(result)
    return result


_world: World
"""Of a worker process: sent once, not with every task."""


def _enter(world: World) -> None:
    global _world
    _world = world


def _run_here(task: Task) -> RunResult:
    return _run(_world, task)


def _run(world: World, task: Task) -> RunResult:
    return run(world, task.order, task.policy, know_workload=task.know_workload)
