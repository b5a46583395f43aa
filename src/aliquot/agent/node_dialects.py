"""The dialects that the agent serves: those that its flags name, else those that the labels of its Node name."""

import asyncio
from collections.abc import Sequence
from typing import NoReturn

import structlog

from aliquot.clock import Clock
from aliquot.dialects import Dialect, Dialects, dialects_of_node
from aliquot.dialects.reading import SERVES
from aliquot.errors import BadConfig
from aliquot.kube import NODES, Client, KubeError
from aliquot.model import Node

_log = structlog.get_logger()
_LOOK_SECONDS = 10.0


class Relabelled(Exception):
    """The labels of the node name other dialects than those that the agent serves."""


class NodeDialects:
    def __init__(self, names: Sequence[str], node: str, client: Client, dialects: Dialects, clock: Clock) -> None:
        self._names = names
        self._node = node
        self._client = client
        self._dialects = dialects
        self._clock = clock
        self._serving: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._said = ""

    async def choose(self) -> Sequence[Dialect]:
        """The dialects to serve now. Waits until the labels name some, and says once what is missing. Raises BadConfig
        if the flags name dialects that cannot be served."""
        if self._names:
            return served_dialects(self._names, self._dialects)
        while True:
            try:
                served = await self._look()
                break
            except (BadConfig, KubeError) as error:
                self._say(str(error))
            await self._clock.sleep(_LOOK_SECONDS)
        self._said = ""
        _log.info("serving the dialects of the node's labels", dialects=[dialect.name for dialect in served])
        return served

    def see(self, node: Node) -> None:
        """The Node as the API server shows it now."""
        if not self._names and dialects_of_node(node, self._dialects) != self._serving:
            self._changed.set()

    async def changes(self) -> NoReturn:
        """Raises Relabelled when the labels name other dialects."""
        await self._changed.wait()
        raise Relabelled

    async def _look(self) -> Sequence[Dialect]:
        """Raises KubeError, and BadConfig if the labels name no dialect, or some that cannot be served."""
        node = await self._client.get(NODES, self._node)
        self._changed.clear()
        self._serving = dialects_of_node(node, self._dialects)
        if not self._serving:
            names = ", ".join(self._dialects)
            raise BadConfig(f"label the node {SERVES}NAME=true, where NAME is one of {names}")
        return served_dialects(sorted(self._serving), self._dialects, f"the labels {SERVES}")

    def _say(self, what: str) -> None:
        """Once, as long as it stays the same."""
        if what != self._said:
            _log.warning("this node serves no dialect yet", node=self._node, what=what)
        self._said = what


def served_dialects(names: Sequence[str], dialects: Dialects, origin: str = "--dialect") -> Sequence[Dialect]:
    """The dialects with these names. Raises BadConfig for an unknown name, and if two share a resource."""
    if unknown := set(names) - set(dialects):
        known = ", ".join(dialects)
        raise BadConfig(f"{origin}: unknown dialect {', '.join(sorted(unknown))}; valid dialects are {known}")
    served = [dialects[name] for name in dict.fromkeys(names)]
    owners: dict[str, Dialect] = {}
    for dialect in served:
        for resource in dialect.resources:
            if (other := owners.setdefault(resource.name, dialect)) is not dialect:
                both = f"{other.name} and {dialect.name}"
                raise BadConfig(f"{origin}: {both} both use {resource.name}; a node can serve only one of them")
    return served
