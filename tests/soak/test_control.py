"""The control plane's histories, new ones each time."""

import asyncio
from typing import Any

from hypothesis import given

from tests.integration.control.history import histories, play
from tests.soak.length import in_rounds


def _play(history: list[tuple[Any, ...]]) -> None:
    asyncio.run(play(history))


def test_nothing_is_sold_twice_in_any_history() -> None:
    done = in_rounds(lambda how: how(given(histories)(_play))())
    print(f"{done} histories")
