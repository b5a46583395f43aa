"""What the configuration means to who is answered: on which port, and as what."""

from collections.abc import Mapping

from aliquot.app.server.listening import replica_token
from aliquot.clock import SystemClock
from aliquot.config import Configuration, meaning
from aliquot.config.tree import ENDPOINTS
from aliquot.endpoints.asgi import Kind
from aliquot.endpoints.callers import Callers, Known
from aliquot.endpoints.tokens import Tokens
from aliquot.kube import Client


class Guests:
    """`check` looks whether tokens can be reviewed."""

    def __init__(self, tree: Configuration, client: Client) -> None:
        self._tree = tree
        self._tokens = Tokens(client, SystemClock(), tree.callers.audience)
        known = Known(_kinds(tree.callers.users), _kinds(tree.callers.groups), tree.replicas.tls_name)
        self._callers = Callers(known, self._tokens, replica_token(tree))
        self._is_asked = False
        said = [
            name
            for name in ENDPOINTS
            if (endpoint := getattr(tree.endpoints, name)).enabled and endpoint.callers == "anyone"
        ]
        self.open_endpoints = [
            f"the {name} endpoint answers anyone who reaches its port (endpoints.{name}.callers is anyone)"
            for name in said
        ]

    def of(self, endpoint: str, address: str) -> Callers | None:
        """Of an endpoint's port; None where anyone is answered."""
        if not meaning.knows_callers(self._tree, getattr(self._tree.endpoints, endpoint).callers, address):
            return None
        self._is_asked = True
        return self._callers

    async def check(self) -> None:
        if self._is_asked:
            await self._tokens.check()

    def notes(self) -> list[str]:
        """For people: where nobody is asked, and what we may not do."""
        return [*self.open_endpoints, *self._tokens.notes()]


def _kinds(given: Mapping[str, str]) -> dict[str, Kind | None]:
    return {name: None if kind == "nobody" else Kind(kind) for name, kind in given.items()}
