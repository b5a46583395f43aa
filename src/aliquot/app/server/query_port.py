"""The query API and its port: TLS, callers, and what keeps all of it up to date."""

import asyncio
import ssl
from collections.abc import Callable

import structlog

from aliquot.app.server.query_certificates import GivenCertificates, OwnCertificates, QueryCertificates, Served
from aliquot.app.server.transport import least_version
from aliquot.clock import Clock
from aliquot.config.server_tree import ServerConfig
from aliquot.control import ControlPlane
from aliquot.endpoints import asgi
from aliquot.endpoints.callers import Callers
from aliquot.endpoints.cluster_callers import ClusterCallers
from aliquot.endpoints.cluster_trust import ClusterTrust
from aliquot.endpoints.endpoint import Table
from aliquot.endpoints.forwarding import Way
from aliquot.endpoints.own_rights import OwnRights
from aliquot.endpoints.query.api import QueryApi
from aliquot.endpoints.query_tls import QueryTls
from aliquot.endpoints.status_answers import unavailable
from aliquot.endpoints.tls import Certificates
from aliquot.errors import BadConfig
from aliquot.kube import Client

_log = structlog.get_logger()

_RIGHTS_SECONDS = 10.0
"""How long a right is known, as in other API servers."""


class QueryPort:
    """Call `start` before use; `run` follows all changes. Unusable certificates change nothing. Raises BadConfig."""

    def __init__(
        self,
        config: ServerConfig,
        plane: ControlPlane,
        client: Client,
        clock: Clock,
        shown: Certificates | None,
        callers_with: Callable[[str], Callers],
    ) -> None:
        """`shown` is the certificate of `listen.tls`, if any. `callers_with` returns the callers for whom this is the
        name of replicas."""
        self._endpoints = config.query_api.endpoints
        self.api = QueryApi(plane, OwnRights(client, clock, _RIGHTS_SECONDS))
        least = least_version(config)
        self.certificates: QueryCertificates = (
            GivenCertificates(config, client, clock, shown)
            if shown is not None
            else OwnCertificates(config.query_api, client, clock, least)
        )
        self._trust = ClusterTrust(client, clock)
        self._trouble = ""
        self._served = self.certificates.served()
        self.tls = QueryTls(least, self._served.chain, self._served.key, self._client_cas(self._served))
        callers = callers_with(self.certificates.replica_name)
        self.callers = ClusterCallers(
            callers, self._trust, clock, lambda: self._served.replicas, lambda: self._served.clients
        )
        for changed in (self._trust.changed, self.certificates.changed):
            changed.subscribe(lambda _: self._renew())

    async def start(self) -> None:
        """Find the certificate that all replicas share. If that fails, serve one of our own for now."""
        await self.certificates.start()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as following:
            following.create_task(self._trust.run())
            following.create_task(self.certificates.run())
            following.create_task(self.api.run())

    def notes(self) -> list[str]:
        """Problems that people should know about."""
        return [*filter(None, [self._trouble]), *self._trust.notes(), *self.certificates.notes()]

    def ways(self) -> dict[str, Way]:
        """How to reach this port of another replica, if that differs from other ports."""
        way = self.certificates.way
        return dict.fromkeys(self._endpoints, way) if way is not None else {}

    def routes(self, extra: Table) -> Table:
        """The routes that the port has in addition, for callers with the right to their paths, and the health routes of
        the original and of API servers."""

        async def health(_: asgi.Call) -> asgi.Response:
            return asgi.Response(b"")

        own = {(method, path): asgi.OpenHandler(health) for path in ("/health", "/livez") for method in ("GET", "HEAD")}
        return {**{route: self._guarded(handler) for route, handler in extra.items()}, **own}

    def _guarded(self, handler: asgi.Handler) -> asgi.Handler:
        is_open = isinstance(handler, asgi.OpenHandler)
        return handler if is_open else asgi.OwnRightsHandler(handler, unavailable, self.api.refusal_of_verb)

    def _renew(self) -> None:
        try:
            served = self.certificates.served()
            self.tls.use(served.chain, served.key, self._client_cas(served))
        except (BadConfig, ssl.SSLError) as error:
            self._trouble = f"the query API keeps its previous certificates: {error}"
            _log.error("cannot use new certificates for the query API", why=str(error))
            return
        self._served, self._trouble = served, ""

    def _client_cas(self, served: Served) -> str:
        return self._trust.current.pem() + served.replicas.pem()
