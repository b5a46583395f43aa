"""A node's inventory under any history, with the hardware as the judge: briefly here, for long in tests/soak."""

from hypothesis import settings

from tests.integration.control.inventory_machine import InventoryMachine

TestAnyInventory = InventoryMachine.TestCase
TestAnyInventory.settings = settings(max_examples=100, stateful_step_count=30)
