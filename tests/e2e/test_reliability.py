"""The long versions of the storm and of the kills, on the embedded cluster; docs/reliability.md has their numbers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reliability.kills import kill_leaders
from tests.reliability.storm import weather

pytestmark = [pytest.mark.e2e]

KILLS, CLUSTERS = 100, 2


async def test_two_thousand_pods_are_placed_in_bad_weather(tmp_path: Path, progress: Callable[[str], None]) -> None:
    outcome = await weather(tmp_path, pods=2000, outage=10.0)
    progress(str(outcome))
    assert outcome.findings == []
    assert {"conflicts", "errors", "lostAnswers", "droppedWatches", "outages"} <= outcome.injected.keys()


async def test_a_hundred_leaders_are_killed(tmp_path: Path, progress: Callable[[str], None]) -> None:
    """In several clusters at once: most of the time is spent in waiting for Leases to run out."""
    folders = [tmp_path / str(number) for number in range(CLUSTERS)]
    for folder in folders:
        folder.mkdir()
    async with asyncio.TaskGroup() as killing:
        tasks = [
            killing.create_task(kill_leaders(folder, KILLS // CLUSTERS, seed=seed))
            for seed, folder in enumerate(folders)
        ]
    for outcome in (task.result() for task in tasks):
        progress(str(outcome))
        assert (outcome.findings, outcome.kills) == ([], KILLS // CLUSTERS)
