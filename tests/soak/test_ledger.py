"""The ledger's machine for as long as ALIQUOT_SOAK_EXAMPLES and ALIQUOT_SOAK_MINUTES say, with new histories each time.

make soak EXAMPLES=100000 MINUTES=60
"""

import os
import time

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.ledger.machine import LedgerMachine

EXAMPLES = int(os.environ.get("ALIQUOT_SOAK_EXAMPLES", "2000"))
MINUTES = float(os.environ.get("ALIQUOT_SOAK_MINUTES", "1"))
ROUND = 200
"""Examples between two looks at the time."""


def test_the_ledger_keeps_its_invariants_under_long_histories() -> None:
    end = time.monotonic() + MINUTES * 60
    done = 0
    while done < EXAMPLES and time.monotonic() < end:
        examples = min(ROUND, EXAMPLES - done)
        run_state_machine_as_test(
            LedgerMachine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=100,
                derandomize=False,
                deadline=None,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
        done += examples
    print(f"{done} histories of up to 100 steps")
