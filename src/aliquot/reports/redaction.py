"""Takes secrets, and what others need not know, out of objects and configurations before they are written to a file."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import yaml

from aliquot.dialects import Dialects
from aliquot.model import Object
from aliquot.reports.objects import ClusterObjects

_OURS = "aliquot.io"
_Kept = TypeVar("_Kept", bound=Object)
_REMOVED = "(removed)"
_SECRET_KEY = re.compile(r"keydata|token|password|secret|credential", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"PRIVATE KEY|(password|secret|token)\s*=", re.IGNORECASE)
_USER = re.compile(r"//[^/@\s]*@")
"""The user and the password in an address."""


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


def without_secrets(document: Any) -> Any:
    """The same without private keys, and without what plugins call secret."""
    if isinstance(document, Mapping):
        return {
            key: _REMOVED if _SECRET_KEY.search(str(key)) else without_secrets(value) for key, value in document.items()
        }
    if isinstance(document, str):
        return _USER.sub(f"//{_REMOVED}@", document)
    return [without_secrets(item) for item in document] if isinstance(document, list) else document


def shown_data(data: Mapping[str, str]) -> Any:
    """What a ConfigMap has, without private keys, tokens and passwords, also within a text that is YAML."""
    return without_secrets({key: _shown(text) for key, text in data.items()})


def _shown(text: str) -> Any:
    """A text with a structure is shown as that structure. One that only looks like it may have anything."""
    if _SECRET_TEXT.search(text):
        return _REMOVED
    if ":" not in text:
        return text
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        return _REMOVED
    return document if isinstance(document, Mapping | list) else text
