"""Response bodies: single objects, lists, tables and the frames of a watch.

Objects are encoded when they are stored, so lists and watches only join bytes.
"""

import re
from collections.abc import Sequence

import msgspec

from aliquot.apiserver.eventlog import Stored
from aliquot.apiserver.objects import Now, Object
from aliquot.apiserver.resources import ServedResource
from aliquot.apiserver.tables import table

JSON = "application/json"

_TABLE = re.compile(r"as=Table\b", re.ASCII)
_encode = msgspec.json.Encoder().encode


def encode(value: object) -> bytes:
    return _encode(value)


def wants_table(accept: str) -> bool:
    """Whether the first acceptable media type is a Table. Protobuf gets JSON."""
    for offer in accept.split(","):
        media, _, parameters = offer.strip().partition(";")
        if media in (JSON, "*/*", "application/*"):
            return _TABLE.search(parameters) is not None and "v=v1" in parameters.replace("v1beta1", "")
    return False


class Presenter:
    """Presents objects as a request wants them: as they are, or as rows of a Table."""

    def __init__(self, resource: ServedResource, *, as_table: bool, include: str, clock: Now) -> None:
        self._resource = resource
        self._as_table = as_table
        self._include = include
        self._clock = clock

    def one(self, stored: Stored) -> bytes:
        if not self._as_table:
            return _typed(self._resource, stored.body)
        return self._table([stored], {"resourceVersion": str(stored.revision)})

    def many(self, items: Sequence[Stored], metadata: Object) -> bytes:
        if self._as_table:
            return self._table(items, metadata)
        head = {"kind": f"{self._resource.kind}List", "apiVersion": self._resource.api_version}
        opening = _encode({**head, "metadata": metadata})
        return b'%b,"items":[%b]}' % (opening[:-1], b",".join(item.body for item in items))

    def bookmark(self, revision: int, annotations: dict[str, str]) -> bytes:
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        if self._as_table:
            return self._table([], metadata)
        return _typed(self._resource, _encode({"metadata": metadata}))

    def _table(self, items: Sequence[Stored], metadata: Object) -> bytes:
        objects = (item.obj for item in items)
        return _encode(table(self._resource.table, objects, metadata, self._clock(), self._include))


def frame(change: str, encoded: bytes) -> bytes:
    """A line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (change.encode(), encoded)


def _typed(resource: ServedResource, body: bytes) -> bytes:
    head = b'{"kind":"%b","apiVersion":"%b"' % (resource.kind.encode(), resource.api_version.encode())
    return head + (b"," if body != b"{}" else b"") + body[1:]
