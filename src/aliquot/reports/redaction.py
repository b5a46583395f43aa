"""Takes out of a cluster's objects what is nobody else's business, before they are written to a file."""

from typing import TypeVar

import msgspec

from aliquot.dialects import Dialects
from aliquot.model import Object
from aliquot.reports.objects import ClusterObjects

_OURS = "aliquot.io"
_Kept = TypeVar("_Kept", bound=Object)


def redacted(objects: ClusterObjects, dialects: Dialects) -> ClusterObjects:
    """The same without annotations that neither Aliquot nor an original reads: `last-applied-configuration` has the
    environment of containers, and others may have anything. The rest of an object has only the fields of our model."""
    keys = {
        key
        for dialect in dialects.values()
        for key in (*dialect.placement_keys, *dialect.size_keys, *dialect.mark_keys, *dialect.guarded_resources)
    }
    domains = {domain for domain, slash, _ in (key.partition("/") for key in keys) if slash}
    exact = {key for key in keys if "/" not in key and not key.endswith("*")}
    beginnings = tuple(key[:-1] for key in keys if "/" not in key and key.endswith("*"))

    def is_read(key: str) -> bool:
        domain, slash, _ = key.partition("/")
        if not slash:
            return key in exact or key.startswith(beginnings)
        return domain in domains or f".{domain}".endswith(f".{_OURS}")

    def kept(found: _Kept) -> _Kept:
        annotations = {key: value for key, value in found.metadata.annotations.items() if is_read(key)}
        return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, annotations=annotations))

    lists = {name: getattr(objects, name) for name in objects.__struct_fields__}
    shown = {name: found for name, found in lists.items() if isinstance(found, list)}
    return msgspec.structs.replace(
        objects,
        **{name: [kept(each) if isinstance(each, Object) else each for each in found] for name, found in shown.items()},
    )
