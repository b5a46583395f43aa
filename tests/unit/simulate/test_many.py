"""Runs over several processes."""

from multiprocessing import active_children, get_context

import pytest

from aliquot.errors import AliquotError
from aliquot.simulate.many import Runner, Task
from aliquot.simulate.policy_names import PolicyPair
from aliquot.simulate.results import RunResult
from aliquot.simulate.scenario import Scene, World
from tests.unit.simulate.worlds import node, one_by_one, pod

WORLD = World([node()], [pod(f"p{number}") for number in range(20)])
TASKS = [Task(PolicyPair("binpack", "binpack", "binpack"))] * 100


def test_runs_that_are_given_up_end_no_other_process() -> None:
    def stop(_: RunResult) -> None:
        raise KeyboardInterrupt

    context = get_context("spawn")
    watched, held = context.Pipe(duplex=False)
    other = context.Process(target=watched.poll, args=(None,))
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt), Runner([Scene(WORLD, [one_by_one(WORLD)])], 2) as runner:
            runner.run(TASKS, stop)
        assert active_children() == [other], "the workers have ended"
        assert other.exitcode is None
    finally:
        held.close()
        watched.close()
        other.join()
    assert other.exitcode == 0


def test_a_process_that_dies_is_an_error_of_its_own() -> None:
    def kill(_: RunResult) -> None:
        for child in active_children():
            child.kill()

    with Runner([Scene(WORLD, [one_by_one(WORLD)])], 2) as runner, pytest.raises(AliquotError, match="fewer --jobs"):
        runner.run(TASKS, kill)
