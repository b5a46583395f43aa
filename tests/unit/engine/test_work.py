"""No wish of a user keeps the control plane busy: decisions are made between two calls of everybody else."""

import time
from collections.abc import Callable

import pytest

from bench.decision import Hard, hard_cases

MOST = 75.0
"""Counts to a million, in CPU time: five are the most usual, and what is forgotten soon costs ten times that."""


def cost(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def count() -> None:
    for _ in range(1_000_000):
        pass


@pytest.mark.parametrize("hard", [pytest.param(hard, id=case) for case, hard in hard_cases().items()])
def test_a_hard_wish_is_decided_in_time(hard: Hard) -> None:
    yardstick = max(cost(count) for _ in range(3))
    decision = cost(hard.decide)
    assert hard.decide() is not None
    assert decision < MOST * yardstick
