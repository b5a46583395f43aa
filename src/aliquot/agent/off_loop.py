"""Blocking calls on threads that do not keep the process alive, off the event loop.

A call into a driver may hang for ever, and a process waits at its end for the threads of asyncio's own pool.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def start(function: Callable[[], _T]) -> Future[_T]:
    """Begin a call that may block, on a thread of its own."""
    result: Future[_T] = Future()
    result.set_running_or_notify_cancel()

    def work() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=work, name="off-loop", daemon=True).start()
    return result


async def off_loop(function: Callable[[], _T]) -> _T:
    """The result of a function that may block. A caller that is cancelled leaves the thread behind."""
    return await asyncio.wrap_future(start(function))
