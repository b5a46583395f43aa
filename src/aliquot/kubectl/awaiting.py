"""Runs one coroutine in a program that otherwise needs no event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Found = TypeVar("_Found")


def awaited(work: Coroutine[Any, Any, _Found]) -> _Found:
    """As asyncio.run, which writes the result of its task out as text for nobody: `signal.getsignal` fails to find an
    enum for its handler and drops the message. For 5,000 nodes that takes half a second, so its task has no result."""
    found: list[_Found] = []

    async def keep() -> None:
        found.append(await work)

    asyncio.run(keep())
    return found[0]
