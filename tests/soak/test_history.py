"""Histories of every set-up, for hours."""

import os
from pathlib import Path

import pytest

from tests.reliability.history import driver

MINUTES = float(os.environ.get("ALIQUOT_SOAK_MINUTES", "1"))
SEED = os.environ.get("ALIQUOT_SOAK_SEED", "") or os.urandom(4).hex()


@pytest.mark.parametrize("setup", ["mixed", "late"])
async def test_nothing_is_over_sold_or_lost_and_a_leader_leads(tmp_path: Path, setup: str) -> None:
    print(f"ALIQUOT_SOAK_SEED={SEED}")
    figures = await driver.run(
        tmp_path, setup, int(SEED, 16), MINUTES * 60, progress=lambda text: print(text, flush=True)
    )
    print(figures)
    assert [str(violation) for violation in figures.violations] == []
