"""Lists: selection, resourceVersion semantics, and consistent pages."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from aliquot.apiserver.eventlog import Stored
from aliquot.apiserver.objects import Object, key_of
from aliquot.apiserver.resources import ServedResource
from aliquot.apiserver.selectors import Predicate, both, everything, parse_fields, parse_labels
from aliquot.apiserver.statuses import BadRequest, ResourceExpired
from aliquot.apiserver.store import Store

_LARGEST = 2**63 - 1


class _Token(msgspec.Struct):
    revision: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ListPage:
    items: list[Stored]
    metadata: Object


def selection(resource: ServedResource, namespace: str, name: str, query: Mapping[str, str]) -> Predicate:
    """The objects that a request selects. Raises BadRequest for an invalid selector."""
    chosen = parse_labels(query.get("labelSelector", ""))
    chosen = both(chosen, parse_fields(query.get("fieldSelector", ""), resource.fields))
    if namespace:
        chosen = both(chosen, lambda obj: obj["metadata"].get("namespace") == namespace)
    return both(chosen, lambda obj: obj["metadata"]["name"] == name) if name else chosen


def number(query: Mapping[str, str], name: str) -> int | None:
    """A non-negative integer from the query. Raises BadRequest."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text[:20]) > _LARGEST:
        raise BadRequest(f"{name}: Invalid value: {text[:64]!r}: it must be an integer from 0 on")
    return int(text[:20])


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")


def page(store: Store, resource: ServedResource, chosen: Predicate, query: Mapping[str, str]) -> ListPage:
    """A page of a list. Raises BadRequest, ResourceExpired."""
    token = _read_token(query["continue"]) if query.get("continue") else None
    revision = _revision(store, query) if token is None else token.revision
    items = _at(store, resource, revision, token is not None)
    if token is not None:
        items = [item for item in items if key_of(item.obj) > (token.namespace, token.name)]
    if chosen is not everything:
        items = [item for item in items if chosen(item.obj)]
    return _cut(items, revision, number(query, "limit"), countable=not _has_selectors(query))


def _has_selectors(query: Mapping[str, str]) -> bool:
    return bool(query.get("labelSelector") or query.get("fieldSelector"))


def _revision(store: Store, query: Mapping[str, str]) -> int:
    asked = number(query, "resourceVersion")
    if asked:
        store.require(asked)
    exact = query.get("resourceVersionMatch") == "Exact"
    return asked if exact and asked is not None else store.revision


def _at(store: Store, resource: ServedResource, revision: int, continued: bool) -> list[Stored]:
    try:
        return store.snapshot(resource.collection, revision)
    except ResourceExpired as error:
        if not continued:
            raise
        raise ResourceExpired("The provided continue parameter is too old: start the list over without it") from error


def _cut(items: list[Stored], revision: int, limit: int | None, countable: bool) -> ListPage:
    metadata: Object = {"resourceVersion": str(revision)}
    if not limit or len(items) <= limit:
        return ListPage(items, metadata)
    metadata["continue"] = _write_token(revision, items[limit - 1])
    if countable:
        metadata["remainingItemCount"] = len(items) - limit
    return ListPage(items[:limit], metadata)


def _write_token(revision: int, last: Stored) -> str:
    return urlsafe_b64encode(msgspec.json.encode(_Token(revision, *key_of(last.obj)))).decode()


def _read_token(text: str) -> _Token:
    try:
        return msgspec.json.decode(urlsafe_b64decode(text), type=_Token)
    except (NotBase64, ValueError, msgspec.DecodeError) as error:
        raise BadRequest("continue key is not valid") from error
