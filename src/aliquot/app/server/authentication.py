"""Which callers each port answers, and how they prove who they are."""

from collections.abc import Mapping

from aliquot.app.server.transport import replica_token
from aliquot.clock import SystemClock
from aliquot.config.sections.endpoints import ENDPOINTS
from aliquot.config.server_tree import ServerConfig
from aliquot.endpoints.asgi import CallerKind
from aliquot.endpoints.callers import Callers, Known
from aliquot.endpoints.tokens import Tokens
from aliquot.kube import Client


class Authentication:
    """Decides per port whether callers must authenticate, and holds what that needs."""

    def __init__(self, config: ServerConfig, client: Client) -> None:
        self._config = config
        self._tokens = Tokens(client, SystemClock(), config.callers.audience)
        self._callers = self._with_replica_name(config.replicas.tls_name)
        self._is_used = False
        self.open_endpoints = [
            f"the {name} endpoint answers anyone who can reach its port (endpoints.{name}.callers is anyone)"
            for name in ENDPOINTS
            if (endpoint := getattr(config.endpoints, name)).enabled
            and endpoint.callers == "anyone"
            and name not in config.query_api.endpoints
        ]
        """A note for each endpoint that is configured to answer anyone."""

    def _with_replica_name(self, name: str) -> Callers:
        """Callers as configured. Those with a certificate for this name are replicas."""
        callers = self._config.callers
        return Callers(
            Known(_kinds(callers.users), _kinds(callers.groups), name), self._tokens, replica_token(self._config)
        )

    def for_query_port(self, replica_name: str) -> Callers:
        self._is_used = True
        return self._with_replica_name(replica_name)

    def for_port(self, endpoint: str, address: str) -> Callers | None:
        """The check of callers for an endpoint's port. None if the port answers anyone."""
        if not self._config.listen.knows_callers(getattr(self._config.endpoints, endpoint).callers, address):
            return None
        self._is_used = True
        return self._callers

    async def check(self) -> None:
        """Find out whether the server may review tokens, if any port needs that."""
        if self._is_used:
            await self._tokens.check()

    def notes(self) -> list[str]:
        """For people: endpoints without authentication, and missing rights."""
        return [*self.open_endpoints, *self._tokens.notes()]


def _kinds(given: Mapping[str, str]) -> dict[str, CallerKind | None]:
    return {name: None if kind == "nobody" else CallerKind(kind) for name, kind in given.items()}
