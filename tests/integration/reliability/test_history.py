"""Short histories. `make soak` has them for hours, `python -m tests.reliability.history` by hand."""

from pathlib import Path

import pytest

from tests.reliability.history import driver

SECONDS = 6.0


@pytest.mark.parametrize("seed", [1])
async def test_nothing_is_over_sold_or_lost_and_a_leader_leads(tmp_path: Path, seed: int) -> None:
    figures = await driver.run(tmp_path, "brief", seed, SECONDS)
    assert [str(violation) for violation in figures.violations] == []
