"""No wish of a user keeps the control plane busy: decisions are made between two calls of everybody else."""

import time
from collections.abc import Callable

import pytest

from bench.decision import Hard, hard_cases

MAX = 15.0
"""Counts to a million, in CPU time: two are the most usual, and what is forgotten soon costs ten times that."""


def cost(work: Callable[[], object]) -> float:
    began = time.process_time()
    assert work() is not None
    return time.process_time() - began


def count() -> int:
    return sum(1 for _ in range(1_000_000))


@pytest.mark.parametrize("hard", [pytest.param(hard, id=case) for case, hard in hard_cases().items()])
def test_a_hard_wish_is_decided_in_time(hard: Hard) -> None:
    yardstick = max(cost(count) for _ in range(3))
    assert cost(hard.decide) < MAX * yardstick
