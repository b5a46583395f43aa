"""Pods in every dialect on nodes that change, with new histories each time."""

from hypothesis.stateful import run_state_machine_as_test

from tests.integration.control.cluster_machine import ClusterMachine
from tests.soak.length import in_rounds


def test_no_part_is_sold_twice_and_books_built_anew_are_the_same() -> None:
    done = in_rounds(
        lambda how: run_state_machine_as_test(ClusterMachine, settings=how),
        stateful_step_count=6,
    )
    print(f"{done} histories")
