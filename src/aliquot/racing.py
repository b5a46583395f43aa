"""Waits for the first of several coroutines."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*work: Coroutine[Any, Any, Any]) -> int:
    """Run all coroutines until the first one ends. Cancel the others and wait for their end.

    Returns the index of the coroutine that ended, or the lowest index if several did. Raises its exception.
    """
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    done = [index for index, task in enumerate(tasks) if task in ended]
    for index in done:
        tasks[index].result()
    return done[0]
