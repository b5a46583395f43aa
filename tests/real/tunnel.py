"""A plain endpoint to a server with TLS: whoever comes in speaks to it with an administrator's certificate.

It runs in a thread with a loop of its own, because tests end their loops before TLS connections have said goodbye.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from aliquot.kube import Access


@contextmanager
def tunnel(access: Access) -> Iterator[str]:
    """The URL at which the server is reached without TLS."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    endpoint = asyncio.run_coroutine_threadsafe(_open(access), loop).result()
    try:
        host, port = endpoint.sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(_close(endpoint), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _open(access: Access) -> asyncio.Server:
    inside = urlsplit(access.server)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(inside.hostname, inside.port, ssl=access.tls)
        ways = [asyncio.ensure_future(_pump(reader, far_writer)), asyncio.ensure_future(_pump(far_reader, writer))]
        try:
            with suppress(asyncio.CancelledError):  # at the end; asyncio would make noise of it
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for side in (writer, far_writer):
                side.transport.abort()

    return await asyncio.start_server(carry, "127.0.0.1", 0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(2**16):
            writer.write(piece)
            await writer.drain()


async def _close(endpoint: asyncio.Server) -> None:
    endpoint.close()
    open_ = asyncio.all_tasks() - {asyncio.current_task()}
    for task in open_:
        task.cancel()
    await asyncio.gather(*open_, return_exceptions=True)
