"""The long version of the storm, on the embedded cluster; docs/reliability.md has its numbers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reliability.storm import weather

pytestmark = [pytest.mark.e2e]


async def test_two_thousand_pods_are_placed_in_bad_weather(tmp_path: Path, progress: Callable[[str], None]) -> None:
    outcome = await weather(tmp_path, pods=2000, outage=10.0)
    progress(str(outcome))
    assert outcome.findings == []
    assert {"conflicts", "errors", "lostAnswers", "droppedWatches", "outages"} <= outcome.injected.keys()
