"""The part of a card that pods hold: one rule, for one card and for all cards at once."""

import numpy as np
import pytest

from aliquot.model import Charge
from aliquot.model.selling import share_by, share_of
from tests.factories import make_gpu

CASES = [
    (Charge(), 0.0),
    (Charge(cores=25, mib=1536), 0.25),
    (Charge(cores=5, mib=7680), 0.5),
    (Charge(slots=3), 0.75),
    (Charge(cores=100, mib=15360, slots=1), 1.0),
]


@pytest.mark.parametrize(("taken", "share"), CASES)
def test_a_part_counts_in_the_measure_of_which_it_is_most(taken: Charge, share: float) -> None:
    assert share_of(make_gpu(0, mib=15360, slots=4), taken) == share


def test_a_card_without_memory_or_slots_is_no_division_by_zero() -> None:
    assert share_of(make_gpu(0, mib=0), Charge(cores=10)) == 0.1


def test_the_rule_is_the_same_for_arrays() -> None:
    cores, mib, slots, _ = map(np.array, zip(*(taken for taken, _ in CASES), strict=True))
    shares = share_by(np.maximum, (cores, mib, slots), np.full(len(CASES), 15360), np.full(len(CASES), 4))
    assert shares.tolist() == [share for _, share in CASES]
