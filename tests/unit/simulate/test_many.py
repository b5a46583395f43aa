"""Runs over several processes."""

from multiprocessing import active_children

import pytest

from aliquot.errors import AliquotError
from aliquot.simulate.many import Runner, Task
from aliquot.simulate.policy_names import PolicyPair
from aliquot.simulate.results import RunResult
from aliquot.simulate.scenario import Scene, World
from tests.unit.simulate.worlds import node, one_by_one, pod


def test_a_process_that_dies_is_an_error_of_its_own() -> None:
    def kill(_: RunResult) -> None:
        for child in active_children():
            child.kill()

    world = World([node()], [pod(f"p{number}") for number in range(20)])
    tasks = [Task(PolicyPair("binpack", "binpack", "binpack"))] * 100
    with Runner([Scene(world, [one_by_one(world)])], 2) as runner, pytest.raises(AliquotError, match="fewer --jobs"):
        runner.run(tasks, kill)
