"""The first stop of every request: finds the sender and the policies, and sends errors and warnings back."""

from collections.abc import Callable

import structlog
from aiohttp import web

from aliquot.apiserver.objects import Object
from aliquot.apiserver.statuses import BadRequest, StatusError
from aliquot.embedded.api import bodies
from aliquot.embedded.api.admission import Admission
from aliquot.embedded.api.identity import Users
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.rights import Rights
from aliquot.embedded.api.server import RequestHandler, refusal

_log = structlog.get_logger()


class Front:
    def __init__(self, registry: Registry, logs: Callable[[Object], str], users: Users) -> None:
        self._registry = registry
        self._logs = logs
        self._users = users
        self._rights = Rights(registry.store, users)

    def application(self) -> web.Application:
        application = web.Application(client_max_size=bodies.MAX_BYTES)
        application.router.add_route("*", "/{path:.*}", self._answer)
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        warnings: list[str] = []
        response = await self._answer_or_refuse(request, warnings)
        for text in warnings:
            quoted = text.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{quoted}"')
        return response

    async def _answer_or_refuse(self, request: web.Request, warnings: list[str]) -> web.StreamResponse:
        try:
            user = self._users.sender(request.headers)
            admission = Admission(self._registry.store, user, warnings.append)
            registry = self._registry.admitting(admission)
            server = RequestHandler(registry, self._logs, user, self._users, self._rights, warnings.append)
            return await server.answer(request)
        except StatusError as error:
            return refusal(error)
        except RecursionError:
            return refusal(BadRequest("the body of the request is nested too deeply"))
        except Exception:
            _log.exception("cannot answer", method=request.method, path=request.path)
            return refusal(StatusError("Internal error occurred"))
