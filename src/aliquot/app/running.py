"""Runs a command until it ends, fails or gets a signal."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import click
import structlog

from aliquot.app.process_signals import ends_at_once
from aliquot.errors import AliquotError

_log = structlog.get_logger()

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def on_uvloop(work: Coroutine[Any, Any, None]) -> None:
    import uvloop  # 2 MB, which the agent does not need: it has little to do

    uvloop.run(work)


def run_until_stopped(
    work: Coroutine[Any, Any, None], run: Callable[[Coroutine[Any, Any, None]], None] = on_uvloop
) -> None:
    """Run to the end, or until a signal; then clean up and exit with 0. Print an AliquotError and exit with 1.

    A second signal ends the process at once. `run` runs a coroutine in an event loop of its own.
    """
    with reporting_errors(1):
        run(_stoppable(work))


@contextmanager
def reporting_errors(code: int) -> Iterator[None]:
    """Print an AliquotError and exit with this code."""
    errors: list[BaseException] = []
    try:
        yield
    except* AliquotError as group:
        errors = _leaves(group)
    for error in errors:
        click.echo(f"aliquot: {error}", err=True)
    if errors:  # not within except*, which would wrap SystemExit in a group
        sys.exit(code)


async def _stoppable(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()

    def stop(received: signal.Signals) -> None:
        _log.info("stopping", signal=received.name)
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            ends_at_once(number)
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        return


def _leaves(group: BaseExceptionGroup[AliquotError]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
