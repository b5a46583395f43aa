"""A node's inventory under any history, with new histories each time."""

from hypothesis.stateful import run_state_machine_as_test

from tests.integration.control.inventory_machine import InventoryMachine
from tests.soak.length import in_rounds


def test_no_part_is_sold_twice_whatever_a_node_s_cards_are_called() -> None:
    done = in_rounds(
        lambda how: run_state_machine_as_test(InventoryMachine, settings=how),
        stateful_step_count=30,
    )
    print(f"{done} histories")
