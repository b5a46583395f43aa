"""Objects of a real API server as they change, seen by a thread of its own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from socket import SHUT_RDWR
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tests.real.by_hand import Asking

Seen = Callable[[dict[str, Any]], None]


@contextmanager
def following(url: str, path: str, seen: Seen) -> Iterator[None]:
    """While the block runs, `seen` gets what is there, before the block begins, and then every later version, one after
    the other; not those that are deleted."""
    connection = HTTPConnection(urlsplit(url).netloc)
    with closing(Asking(url)) as ask:
        version = _list(ask, path, seen)
        ending = threading.Event()
        work = threading.Thread(target=_work, args=(ask, connection, path, version, seen, ending), daemon=True)
        work.start()
        try:
            yield
        finally:
            ending.set()
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(SHUT_RDWR)
            work.join()
            connection.close()


def _list(ask: Asking, path: str, seen: Seen) -> str:
    listed = ask("GET", path)
    for obj in listed["items"]:
        seen(obj)
    return str(listed["metadata"]["resourceVersion"])


def _work(
    ask: Asking, connection: HTTPConnection, path: str, version: str, seen: Seen, ending: threading.Event
) -> None:
    while not ending.is_set():
        with suppress(OSError, HTTPException, AttributeError):  # the last comes of a connection that was shut down
            _watch(connection, path, version, seen)
        connection.close()
        if not ending.is_set():
            version = _list(ask, path, seen)


def _watch(connection: HTTPConnection, path: str, version: str, seen: Seen) -> None:
    connection.request("GET", f"{path}?watch=true&resourceVersion={version}")
    for line in connection.getresponse():
        event = msgspec.json.decode(line)
        if event["type"] == "ERROR":
            return
        if event["type"] != "DELETED":
            seen(event["object"])
