"""A term of leadership: a number in a ConfigMap that the API server itself compares with our writes.

A new leader raises it, and waits until the API server has noticed. From then on the API server refuses every write of a
former leader, however late it arrives.
"""

from typing import Any

import structlog

from aliquot.config.sections.replicas import LeaseSection
from aliquot.errors import BadRecord
from aliquot.kube import CONFIG_MAPS, AlreadyExists, ApiError, Client, ConfigMap, Conflict, KubeError, NotFound
from aliquot.model.admission import EPOCH_KEY, EPOCH_MAP, STALE_EPOCH
from aliquot.model.records import EPOCH, PLACEMENT

_log = structlog.get_logger()

_PROBE = "aliquot-epoch-probe"
_PROBE_SECONDS = 2.0
NEVER = 0
"""No term has this number."""


def is_stale(error: KubeError) -> bool:
    """Whether the API server refused a write because another server leads now."""
    return STALE_EPOCH in str(error)


class Term:
    def __init__(self, client: Client, lease: LeaseSection) -> None:
        self._client = client
        self._namespace, self._name = lease.namespace, EPOCH_MAP

    async def is_fenced(self) -> bool:
        """Whether the API server refuses other numbers at all: without our policy it accepts any. Raises KubeError."""
        return await self.is_refused(NEVER)

    async def raise_epoch(self) -> int:
        """Raise the epoch by compare-and-swap and return it. Two concurrent callers get different numbers.

        Raises KubeError, and BadRecord for a value that is not a number.
        """
        while True:
            try:
                return await self._raise_once()
            except Conflict:
                _log.info("another server raised the epoch at the same moment, trying again")

    async def _raise_once(self) -> int:
        try:
            now = await self._client.get(CONFIG_MAPS, self._name, self._namespace)
        except NotFound:
            return await self._create()
        epoch = self._read(now) + 1
        body = {"data": {EPOCH_KEY: str(epoch)}}
        version = now.metadata.resource_version
        await self._client.patch(CONFIG_MAPS, self._name, body, namespace=self._namespace, version=version)
        return epoch

    async def _create(self) -> int:
        metadata = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {EPOCH_KEY: "1"}}
        try:
            await self._client.create(CONFIG_MAPS, body, self._namespace)
        except AlreadyExists:
            return await self._raise_once()
        return 1

    def _read(self, found: ConfigMap) -> int:
        text = (found.data or {}).get(EPOCH_KEY, str(NEVER))
        if not (text.isascii() and text.isdigit()):
            raise BadRecord(f"ConfigMap {self._namespace}/{self._name}, {EPOCH_KEY}: {text[:40]!r} is not a number")
        return int(text)

    async def current(self) -> int:
        """The current number. Raises KubeError and BadRecord."""
        return self._read(await self._client.get(CONFIG_MAPS, self._name, self._namespace))

    def is_later(self, found: ConfigMap, epoch: int) -> bool:
        """Whether the ConfigMap's number is above this epoch; False if it is not a number."""
        try:
            return self._read(found) > epoch
        except BadRecord:
            return False

    async def is_refused(self, epoch: int) -> bool:
        """Whether the API server refuses Bindings of this term, tested by a dry run for a pod that does not exist.
        Raises KubeError."""
        try:
            await self._client.bind(self._probe(epoch), timeout=_PROBE_SECONDS, dry_run=True)
        except NotFound:
            return False
        except ApiError as error:
            if is_stale(error):
                return True
            raise
        return False

    def _probe(self, epoch: int) -> dict[str, Any]:
        annotations = {EPOCH: str(epoch), PLACEMENT: "{}"}
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": _PROBE, "namespace": self._namespace, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": _PROBE},
        }
