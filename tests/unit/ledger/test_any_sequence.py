"""The ledger's invariants, briefly; `make soak` runs the same machine for long."""

from hypothesis import settings

from tests.unit.ledger.machine import LedgerMachine

TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=40, stateful_step_count=30)
