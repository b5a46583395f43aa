"""Watchers that only count events. They run beside the server, in the process of the benchmark."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_EVENT = b'{"type":'


class Watchers:
    def __init__(self) -> None:
        self.seen: list[int] = []

    @property
    def least(self) -> int:
        """The events that every watcher has seen."""
        return min(self.seen, default=0)

    async def follow(self, place: int, reader: asyncio.StreamReader) -> None:
        rest = b""
        while piece := await reader.read(2**16):
            rest += piece
            self.seen[place] += rest.count(_EVENT)
            rest = rest[-len(_EVENT) + 1 :]

    async def have_seen(self, events: int) -> None:
        async with asyncio.timeout(120):
            while self.least < events:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def watching(url: str, count: int, context: ssl.SSLContext) -> AsyncIterator[Watchers]:
    """So many watches of an address, open."""
    made, address = Watchers(), urlsplit(url)
    target = f"{address.path}?{address.query}"
    writers, tasks = [], []
    for place in range(count):
        reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=context)
        writer.write(f"GET {target} HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head, head
        made.seen.append(0)
        writers.append(writer)
        tasks.append(asyncio.create_task(made.follow(place, reader)))
    try:
        yield made
    finally:
        for writer in writers:
            writer.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
