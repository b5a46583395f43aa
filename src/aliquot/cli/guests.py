"""What the configuration means to who is answered: on which port, and as what."""

from collections.abc import Mapping

from aliquot.cli.listening import replica_token
from aliquot.clock import SystemClock
from aliquot.config import Configuration, meaning
from aliquot.config.tree import DOORS
from aliquot.doors.asgi import Kind
from aliquot.doors.callers import Callers, Known
from aliquot.doors.tokens import Tokens
from aliquot.kube import Client


class Guests:
    """`check` looks whether tokens can be reviewed."""

    def __init__(self, tree: Configuration, client: Client) -> None:
        self._tree = tree
        self._tokens = Tokens(client, SystemClock(), tree.callers.audience)
        known = Known(_kinds(tree.callers.users), _kinds(tree.callers.groups), tree.replicas.tls_name)
        self._callers = Callers(known, self._tokens, replica_token(tree))
        self._is_asked = False
        said = [name for name in DOORS if (door := getattr(tree.doors, name)).enabled and door.callers == "anyone"]
        self.open_doors = [
            f"the {name} door answers anyone who reaches its port (doors.{name}.callers is anyone)" for name in said
        ]

    def of(self, door: str, address: str) -> Callers | None:
        """Of a door's port; None where anyone is answered."""
        if not meaning.knows_callers(self._tree, getattr(self._tree.doors, door).callers, address):
            return None
        self._is_asked = True
        return self._callers

    async def check(self) -> None:
        if self._is_asked:
            await self._tokens.check()

    def notes(self) -> list[str]:
        """For people: where nobody is asked, and what we may not do."""
        return [*self.open_doors, *self._tokens.notes()]


def _kinds(given: Mapping[str, str]) -> dict[str, Kind | None]:
    return {name: None if kind == "nobody" else Kind(kind) for name, kind in given.items()}
