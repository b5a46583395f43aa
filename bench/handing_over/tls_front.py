"""TLS before the simulated API server, as before every real one: its connections cost the agent memory and CPU."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import trustme

_HOST = "127.0.0.1"
_AT_ONCE = 2**16


@asynccontextmanager
async def tls_front(url: str, kubeconfig: Path) -> AsyncIterator[None]:
    """Pass connections on to a server without TLS, and write the kubeconfig for them."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(_HOST).configure_cert(context)
    behind = urlsplit(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(behind.hostname, behind.port)
        await asyncio.gather(_pass_on(reader, requests), _pass_on(answers, writer))

    server = await asyncio.start_server(serve, _HOST, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        cluster = {"server": f"https://{_HOST}:{port}", "certificate-authority": "ca.crt"}
        kubeconfig.with_name("ca.crt").write_bytes(authority.cert_pem.bytes())
        config = {
            "clusters": [{"name": "front", "cluster": cluster}],
            "users": [{"name": "agent", "user": {}}],
            "contexts": [{"name": "agent", "context": {"cluster": "front", "user": "agent"}}],
            "current-context": "agent",
        }
        kubeconfig.write_bytes(msgspec.json.encode(config))
        yield


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_AT_ONCE):
            writer.write(data)
            await writer.drain()
    writer.close()
