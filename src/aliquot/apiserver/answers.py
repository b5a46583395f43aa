"""Response bodies: single objects, lists, tables and the frames of a watch.

Objects are encoded when they are stored, so lists and watches only join bytes.
"""

from collections.abc import Sequence

import msgspec

from aliquot.apiserver.eventlog import EventType, Stored
from aliquot.apiserver.media import Form
from aliquot.apiserver.objects import Now, Object
from aliquot.apiserver.resources import ServedResource
from aliquot.apiserver.tables import PARTIAL, partial_metadata, row, table

_KEPT_FRAMES = 256

_encode = msgspec.json.Encoder().encode


def encode(value: object) -> bytes:
    return _encode(value)


class Presenter:
    """Presents objects as a request wants them: as they are, as rows of a Table, or only their metadata. Watches that
    share a presenter share the frames that it has encoded last."""

    def __init__(self, resource: ServedResource, *, form: Form = Form.OBJECT, include: str = "", clock: Now) -> None:
        self._resource = resource
        self._form = form
        self._include = include
        self._clock = clock
        self._frames: dict[tuple[str, int], bytes] = {}
        """By type of event and revision."""

    def one(self, stored: Stored) -> bytes:
        match self._form:
            case Form.OBJECT:
                return self._typed(stored.body)
            case Form.METADATA:
                return _encode(partial_metadata(stored.obj))
        return self.whole([self.item(stored)], {"resourceVersion": str(stored.revision)})

    def many(self, items: Sequence[Stored], metadata: Object) -> bytes:
        return self.whole([self.item(item) for item in items], metadata)

    def item(self, stored: Stored) -> bytes:
        """An object's part of a list."""
        match self._form:
            case Form.OBJECT:
                return self._typed(stored.body) if self._resource.typed_items else stored.body
            case Form.METADATA:
                return _encode(partial_metadata(stored.obj))
        typed = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, **stored.obj}
        return _encode(row(self._resource.table, typed, self._clock(), self._include))

    def whole(self, items: Sequence[bytes], metadata: Object, ending: bytes = b"") -> bytes:
        """A list of such parts."""
        match self._form:
            case Form.OBJECT:
                head = {"kind": f"{self._resource.kind}List", "apiVersion": self._resource.api_version}
                return _filled({**head, "metadata": metadata}, "items", items, ending)
            case Form.METADATA:
                head = {"kind": f"{PARTIAL['kind']}List", "apiVersion": PARTIAL["apiVersion"]}
                return _filled({**head, "metadata": metadata}, "items", items, ending)
        return _filled(table(self._resource.table, metadata), "rows", items, ending)

    def frame(self, change: EventType, stored: Stored) -> bytes:
        """A line of a watch about an event, which is a moment ago."""
        key = change.value, stored.revision
        made = self._frames.get(key)
        if made is None:
            made = self._frames[key] = self.new_frame(change, stored)
            if len(self._frames) > _KEPT_FRAMES:
                del self._frames[next(iter(self._frames))]
        return made

    def new_frame(self, change: EventType, stored: Stored) -> bytes:
        """A line of a watch about an object as it is now: the ages in a Table are of this moment."""
        return frame(change, self.one(stored))

    def bookmark(self, revision: int, annotations: dict[str, str]) -> bytes:
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        match self._form:
            case Form.OBJECT:
                return self._typed(_encode({"metadata": metadata}))
            case Form.METADATA:
                return _encode({**PARTIAL, "metadata": metadata})
        return self.whole([], metadata)

    def _typed(self, body: bytes) -> bytes:
        head = b'{"kind":"%b","apiVersion":"%b"' % (self._resource.kind.encode(), self._resource.api_version.encode())
        return head + (b"," if body != b"{}" else b"") + body[1:]


def frame(change: str, encoded: bytes) -> bytes:
    """A line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (change.encode(), encoded)


def _filled(head: Object, name: str, items: Sequence[bytes], ending: bytes) -> bytes:
    """Joined once: a list of a large cluster has tens of megabytes."""
    opening, closing = b'%b,"%b":[' % (_encode(head)[:-1], name.encode()), b"]}" + ending
    if not items:
        return opening + closing
    first, *rest = items
    return b",".join((opening + first, *rest[:-1], rest[-1] + closing) if rest else (opening + first + closing,))
