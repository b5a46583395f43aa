"""The dialects that the agent serves: those that its flags name, else those that the labels of its Node name. A label
also says that another vendor's plugin serves the node."""

import asyncio
from collections.abc import Sequence
from typing import NoReturn

import structlog

from aliquot.clock import Clock
from aliquot.dialects import Dialect, Dialects, dialects_of_node
from aliquot.dialects.node_reading import SERVES
from aliquot.errors import BadConfig
from aliquot.kube import NODES, Client, KubeError, NotFound
from aliquot.model import Node
from aliquot.model.records import OBSERVED

_log = structlog.get_logger()
_LOOK_SECONDS = 10.0


class Relabelled(Exception):
    """The labels of the node say something else than what the agent does."""


class NodeDialects:
    def __init__(self, names: Sequence[str], node: str, client: Client, dialects: Dialects, clock: Clock) -> None:
        self._names = names
        self._node = node
        self._client = client
        self._dialects = dialects
        self._clock = clock
        self._seen: frozenset[str] | None = frozenset()
        """The dialects in the labels that the agent follows. None if the node is observed."""
        self._changed = asyncio.Event()
        self._said = ""

    async def choose(self) -> Sequence[Dialect]:
        """The dialects to serve now; none on an observed node. Waits until the labels name some, and says once what is
        missing. Raises BadConfig if the flags name dialects that cannot be served."""
        if self._names:
            return served_dialects(self._names, self._dialects)
        while True:
            try:
                served = await self._look()
                break
            except NotFound:
                self._say(f"the cluster has no node {self._node}: is --node-name right, and has kubelet registered?")
            except (BadConfig, KubeError) as error:
                self._say(str(error))
            await self._clock.sleep(_LOOK_SECONDS)
        self._said = ""
        if served:
            _log.info("serving the dialects of the node's labels", dialects=[dialect.name for dialect in served])
        else:
            _log.info("another vendor's plugin serves this node, and the agent observes it", label=OBSERVED)
        return served

    def see(self, node: Node) -> None:
        """The Node as the API server shows it now."""
        if not self._names and self._labelled(node) != self._seen:
            self._changed.set()

    async def changes(self) -> NoReturn:
        """Raises Relabelled when the labels say something else."""
        await self._changed.wait()
        raise Relabelled

    async def _look(self) -> Sequence[Dialect]:
        """Raises KubeError, and BadConfig if the labels name no dialect, or some that cannot be served."""
        node = await self._client.get(NODES, self._node)
        self._changed.clear()
        self._seen = self._labelled(node)
        if self._seen is None:
            return ()
        if not self._seen:
            names = ", ".join(self._dialects)
            raise BadConfig(f"label the node {SERVES}NAME=true, where NAME is one of {names}")
        return served_dialects(sorted(self._seen), self._dialects, f"the labels {SERVES}")

    def _labelled(self, node: Node) -> frozenset[str] | None:
        is_observed = node.metadata.labels.get(OBSERVED) == "true"
        return None if is_observed else dialects_of_node(node, self._dialects)

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
