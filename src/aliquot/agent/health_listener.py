"""The agent's own listener: /healthz, /readyz and /metrics. An HTTP server of a library would take 2 MB of memory."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from aliquot.errors import BadConfig

_SECONDS = 5.0
"""How long a caller may take for its request, and to read the answer."""
_MOST_CALLERS = 64
"""Every pod of the cluster may call, and the agent needs its file descriptors for kubelet. One more caller ends the
oldest call of the address that has most, so that a pod with many calls cannot keep out kubelet's probes."""

Answer = tuple[HTTPStatus, str]


@asynccontextmanager
async def listening(port: int, not_ready: Callable[[], list[str]], metrics: Callable[[], str]) -> AsyncIterator[None]:
    """Listen on a port of every address; 0 listens nowhere. Raises BadConfig if the port is taken."""
    if not port:
        yield
        return

    def readyz() -> Answer:
        trouble = not_ready()
        status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
        return status, "\n".join(trouble) or "ok"

    routes: Mapping[str, Callable[[], Answer]] = {
        "/healthz": lambda: (HTTPStatus.OK, "ok"),
        "/readyz": readyz,
        "/metrics": lambda: (HTTPStatus.OK, metrics()),
    }

    callers: dict[asyncio.StreamWriter, str] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        callers[writer] = writer.get_extra_info("peername")[0]
        if len(callers) > _MOST_CALLERS:
            ((busiest, _),) = Counter(callers.values()).most_common(1)
            oldest = next(caller for caller, address in callers.items() if address == busiest)
            del callers[oldest]
            oldest.transport.abort()
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_SECONDS):
                writer.write(await _answer(reader, routes))
                writer.close()
                await writer.wait_closed()
        callers.pop(writer, None)
        writer.transport.abort()

    try:
        server = await asyncio.start_server(serve, port=port)
    except OSError as error:
        raise BadConfig(f"--health-port: cannot listen on port {port}: {error.strerror}") from error
    async with server:
        yield


async def _answer(reader: asyncio.StreamReader, routes: Mapping[str, Callable[[], Answer]]) -> bytes:
    """The whole answer to one request. Raises ValueError if it is not HTTP, LimitOverrunError if it is too long."""
    head = await reader.readuntil(b"\r\n\r\n")
    method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    route = routes.get(path.partition("?")[0])
    if route is None:
        status, text = HTTPStatus.NOT_FOUND, "there are /healthz, /readyz and /metrics"
    elif method not in ("GET", "HEAD"):
        status, text = HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered"
    else:
        status, text = route()
    body = text.encode()
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: text/plain; version=0.0.4; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body)
