"""Bad weather: nothing is sold twice and no pod is lost. `make e2e` has the long version."""

from pathlib import Path

from tests.reliability.storm import weather


async def test_pods_are_placed_in_bad_weather(tmp_path: Path) -> None:
    outcome = await weather(tmp_path, pods=300, outage=3.0)
    assert outcome.findings == []
    assert {"conflicts", "errors", "lostAnswers", "droppedWatches", "outages"} <= outcome.injected.keys()
