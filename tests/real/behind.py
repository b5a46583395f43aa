"""A real server behind a ScriptedApi: requests are passed on, and answers streamed back as they come."""

from collections.abc import AsyncIterator
from typing import cast

import aiohttp
from aiohttp import web
from yarl import URL

from aliquot.embedded.api.owning_store import OwningStore
from aliquot.embedded.api.registry import Registry
from tests.real.apiserver import ApiServer
from tests.real.by_hand import Asking, RealRegistry, RealStore

_PASSED = ("Accept", "Content-Type")
_SESSION = web.AppKey("session", aiohttp.ClientSession)


class Real:
    """With a server that has been cleared of what the last test made."""

    def __init__(self, server: ApiServer) -> None:
        server.broom.sweep()
        self.url = server.url
        self._ask = Asking(server.url)
        self.registry = cast(Registry, RealRegistry(self._ask))
        self.store = cast(OwningStore, RealStore(self._ask))

    def close(self) -> None:
        self._ask.close()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        application.cleanup_ctx.append(self._connected)
        return application

    async def _connected(self, application: web.Application) -> AsyncIterator[None]:
        connector, without_end = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=without_end) as session:
            application[_SESSION] = session
            yield

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        url = URL(self.url + request.raw_path, encoded=True)
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        sent = await request.read() or None
        async with request.app[_SESSION].request(request.method, url, data=sent, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name in ("Content-Type", "Retry-After")}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response
