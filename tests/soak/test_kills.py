"""A thousand leaders are killed while they commit."""

import os
from pathlib import Path

from tests.reliability.kills import kill_leaders

KILLS = int(os.environ.get("ALIQUOT_SOAK_KILLS", "1000"))


async def test_no_kill_loses_a_pod_or_sells_a_part_twice(tmp_path: Path) -> None:
    outcome = await kill_leaders(tmp_path, KILLS, seed=2, progress=lambda text: print(f"\r{text}", end="", flush=True))
    print(f"\n{outcome}")
    assert (outcome.findings, outcome.kills) == ([], KILLS)
