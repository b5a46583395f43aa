"""Points for schedulers: the best node alone has the most."""

import numpy as np
import pytest

from aliquot.endpoints.points import points
from aliquot.engine import Standings

NAN = float("nan")


@pytest.mark.parametrize(
    ("scores", "best", "expected"),
    [
        pytest.param([], [], [], id="no node"),
        pytest.param([NAN, NAN], [], [0, 0], id="no node fits"),
        pytest.param([NAN, -3.0], [1], [0, 10], id="one node fits"),
        pytest.param([4.0, 4.0, 4.0], [1], [9, 10, 9], id="equal nodes"),
        pytest.param([0.0, 5.0, 10.0, NAN], [2], [0, 4, 10, 0], id="by their scores"),
        pytest.param([0.0, 99.9, 100.0], [2], [0, 9, 10], id="so close that they round to the same"),
        pytest.param([7.0, 7.0, 1.0], [0, 1], [10, 10, 0], id="ties that are left to the scheduler"),
    ],
)
def test_points(scores: list[float], best: list[int], expected: list[int]) -> None:
    is_best = np.isin(np.arange(len(scores)), best)
    assert points(Standings(np.array(scores), is_best)).tolist() == expected
