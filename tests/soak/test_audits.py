"""Decision logs of any cluster replayed, and audits amid any history, with new ones each time."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis.stateful import run_state_machine_as_test

from tests.integration.control.history import histories
from tests.integration.control.test_audit import play_audited
from tests.integration.control.test_decision_log import RecordedMachine
from tests.soak.length import in_rounds


def _play(history: list[tuple[Any, ...]]) -> None:
    asyncio.run(play_audited(history))


def test_what_was_recorded_comes_out_the_same() -> None:
    done = in_rounds(lambda how: run_state_machine_as_test(RecordedMachine, settings=how), stateful_step_count=10)
    print(f"{done} histories")


def test_an_audit_finds_nothing_in_a_busy_cluster() -> None:
    done = in_rounds(lambda how: how(given(histories)(_play))())
    print(f"{done} histories")
