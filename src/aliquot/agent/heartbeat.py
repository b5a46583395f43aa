"""The agent's heartbeat: one Lease per node. A write to the Node itself would notify every watcher of nodes."""

import random
from typing import Any, NoReturn

import structlog

from aliquot.clock import Clock, rfc3339
from aliquot.kube import LEASES, AlreadyExists, Client, KubeError, NotFound
from aliquot.model.records import NODE_LEASES

_log = structlog.get_logger()

_SHORTEST, _LONGEST = 10.0, 20.0
_DURATION = 60
"""Seconds after which an agent counts as silent. At least three beats can be lost before that."""


class Heartbeat:
    def __init__(self, client: Client, node: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._failed = False

    async def run(self) -> NoReturn:
        while True:
            try:
                await self.beat()
                self._failed = False
            except KubeError as error:
                if not self._failed:
                    _log.warning("cannot renew the node's Lease, retrying", error=str(error))
                self._failed = True
            await self._clock.sleep(random.uniform(_SHORTEST, _LONGEST))

    async def beat(self) -> None:
        """Renew the Lease once, and create it if it is missing. Raises KubeError."""
        moment = rfc3339(self._clock.wall_ns(), fraction=True)
        spec = {"holderIdentity": self._node, "leaseDurationSeconds": _DURATION, "renewTime": moment}
        try:
            await self._client.patch(LEASES, self._node, {"spec": spec}, namespace=NODE_LEASES)
        except NotFound:
            await self._make(spec)

    async def _make(self, spec: dict[str, Any]) -> None:
        metadata = {"name": self._node, "namespace": NODE_LEASES}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            await self._client.create(LEASES, body, NODE_LEASES)
        except AlreadyExists:
            return  # the next beat renews it
