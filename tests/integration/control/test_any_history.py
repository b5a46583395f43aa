"""Whatever happens, in whatever order: nothing is sold twice, and a new process rebuilds the same cluster state."""

from typing import Any

import pytest
from hypothesis import given, settings

from tests.integration.control.history import histories, play


@pytest.mark.embedded_only("it needs hundreds of clusters")
@settings(max_examples=40)
@given(histories)
async def test_nothing_is_sold_twice_and_a_new_process_rebuilds_the_same_books(history: list[tuple[Any, ...]]) -> None:
    await play(history)
