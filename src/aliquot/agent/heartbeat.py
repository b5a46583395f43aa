"""The agent's heartbeat: one Lease per node, with the load of its cards and pods. A write to the Node itself would
notify every watcher of nodes."""

import random
from collections.abc import Callable
from typing import Any, NoReturn

import structlog

from aliquot.clock import Clock, rfc3339
from aliquot.kube import LEASES, NODES, AlreadyExists, Client, KubeError, NotFound
from aliquot.model.load import LOAD, NodeLoad, write_load
from aliquot.model.records import NODE_LEASES

_log = structlog.get_logger()

_FIRST, _SHORTEST, _LONGEST = 3.0, 10.0, 20.0
"""Seconds between two beats. The first one comes before there is a load to tell, so the second one follows soon."""
_DURATION = 40
"""Seconds after which an agent counts as silent: two of its longest periods."""


def _nothing() -> None:
    """Nothing is measured."""


class Heartbeat:
    """`load` returns what was measured last, if anything was."""

    def __init__(self, client: Client, node: str, clock: Clock, load: Callable[[], NodeLoad | None] = _nothing) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._load = load
        self._failed = False

    async def run(self) -> NoReturn:
        shortest, longest = _FIRST, _FIRST
        while True:
            try:
                await self.beat()
                self._failed = False
            except KubeError as error:
                if not self._failed:
                    _log.warning("cannot renew the node's Lease, retrying", error=str(error))
                self._failed = True
            await self._clock.sleep(random.uniform(shortest, longest))
            shortest, longest = _SHORTEST, _LONGEST

    async def beat(self) -> None:
        """Renew the Lease once, and create it if it is missing. Raises KubeError."""
        moment = rfc3339(self._clock.wall_ns(), fraction=True)
        spec = {"holderIdentity": self._node, "leaseDurationSeconds": _DURATION, "renewTime": moment}
        load = self._load()
        annotations = {} if load is None else {LOAD: write_load(load)}
        body = {"metadata": {"annotations": annotations}, "spec": spec}
        try:
            await self._client.patch(LEASES, self._node, body, namespace=NODE_LEASES)
        except NotFound:
            await self._make(annotations, spec)

    async def _make(self, annotations: dict[str, str], spec: dict[str, Any]) -> None:
        owners = await self._owners()
        metadata = {"name": self._node, "namespace": NODE_LEASES, "annotations": annotations, "ownerReferences": owners}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            await self._client.create(LEASES, body, NODE_LEASES)
        except AlreadyExists:
            return  # the next beat renews it

    async def _owners(self) -> list[dict[str, str]]:
        """The Node, so that the Lease goes with it. Raises KubeError."""
        try:
            node = await self._client.get(NODES, self._node)
        except NotFound:
            return []
        return [{"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node.metadata.uid}]
