"""What is written to the API server whenever something has changed, until the API server takes it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

from aliquot.clock import Clock
from aliquot.kube import KubeError

_log = structlog.get_logger()


async def write_on_change(
    changed: asyncio.Event, write: Callable[[], Awaitable[None]], clock: Clock, *, pause: float, complaint: str
) -> NoReturn:
    """Write after each change, and again after a pause if the API server refuses. The log has the complaint once for
    each reason."""
    trouble = ""
    while True:
        await changed.wait()
        changed.clear()
        try:
            await write()
            trouble = ""
        except KubeError as error:
            if str(error) != trouble:
                _log.warning(complaint, error=str(error))
            trouble = str(error)
            await clock.sleep(pause)
            changed.set()
