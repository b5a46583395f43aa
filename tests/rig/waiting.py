"""Waiting for something to become true, without waiting for what has already failed."""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import TypeVar

from tests.rig.errors import RigError
from tests.rig.processes import Process

T = TypeVar("T")


def wait_for(
    what: str,
    condition: Callable[[], T | None],
    *,
    seconds: float,
    processes: Iterable[Process] = (),
    every: float = 0.1,
) -> T:
    """The first true answer of `condition`.

    Raises RigError with the last log lines of `processes` when one of them ends first or the time is over.
    """
    processes = list(processes)
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        for process in processes:
            if not process.running:
                raise RigError(f"{process.name} ended while waiting for {what}\n{process.tail()}")
        if time.monotonic() > end:
            logs = "\n".join(process.tail() for process in processes)
            raise RigError(f"{what}: not within {seconds:g} s\n{logs}")
        time.sleep(every)


def answers(url: str, trust: ssl.SSLContext | None = None) -> bool:
    """Whether a GET of `url` is answered with 200; never through a proxy of the environment."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
