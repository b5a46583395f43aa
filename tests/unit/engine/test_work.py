"""No wish of a user keeps the control plane busy: decisions are made between two calls of everybody else."""

import time

import pytest

from bench.decision import Hard, hard_cases

MOST_SECONDS = 2.0
"""Of CPU time, also on a slow machine: a tenth of it is usual, and what is forgotten soon costs ten times as much."""


@pytest.mark.parametrize("hard", [pytest.param(hard, id=case) for case, hard in hard_cases().items()])
def test_a_hard_wish_is_decided_in_time(hard: Hard) -> None:
    start = time.process_time()
    assert hard.decide() is not None
    assert time.process_time() - start < MOST_SECONDS
