"""Waiting for the first of several things."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*work: Coroutine[Any, Any, Any]) -> int:
    """Run all until one ends; the others are cancelled, and have ended when this returns.

    Returns the place of the one that ended, of several at once the first. Raises what one of them has raised.
    """
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    places = [place for place, task in enumerate(tasks) if task in ended]
    for place in places:
        tasks[place].result()
    return places[0]
