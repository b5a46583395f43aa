"""The ledger's machine, with new histories each time: `make soak`."""

from hypothesis.stateful import run_state_machine_as_test

from tests.soak.length import in_rounds
from tests.unit.ledger.machine import LedgerMachine


def test_the_ledger_keeps_its_invariants_under_long_histories() -> None:
    done = in_rounds(lambda how: run_state_machine_as_test(LedgerMachine, settings=how), stateful_step_count=20)
    print(f"{done} histories of up to 20 steps")
