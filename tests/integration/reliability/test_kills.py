"""The leader is killed at random moments while it commits. `make e2e` and `make soak` do it more often."""

from pathlib import Path

from tests.reliability.kills import kill_leaders


async def test_ten_leaders_are_killed_and_nothing_is_lost_or_sold_twice(tmp_path: Path) -> None:
    outcome = await kill_leaders(tmp_path, 10)
    assert (outcome.findings, outcome.kills) == ([], 10)
