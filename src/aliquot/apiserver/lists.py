"""Lists: selection, resourceVersion semantics, and consistent pages."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import msgspec

from aliquot.apiserver.eventlog import Stored
from aliquot.apiserver.objects import Object
from aliquot.apiserver.resources import ServedResource
from aliquot.apiserver.selectors import Predicate, both, everything, parse_fields, parse_labels, selected_name
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


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects that a request selects, by key and by what is in them."""

    namespace: str = ""
    name: str = ""
    predicate: Predicate = everything

    def __call__(self, stored: Stored) -> bool:
        namespace, name = stored.key
        if (self.namespace and namespace != self.namespace) or (self.name and name != self.name):
            return False
        return self.predicate is everything or self.predicate(stored.obj)


def selection(resource: ServedResource, namespace: str, name: str, query: Mapping[str, str]) -> Selection:
    """Raises BadRequest for an invalid selector."""
    labels, fields = parse_labels(query.get("labelSelector", "")), query.get("fieldSelector", "")
    return Selection(namespace, name or selected_name(fields), both(labels, parse_fields(fields, resource.fields)))


def number(query: Mapping[str, str], name: str) -> int | None:
    """A non-negative integer from the query. Raises BadRequest."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text[:20]) > _LARGEST:
        raise BadRequest(f"{name}: Invalid value: {text[:64]!r}: it must be an integer from 0 on")
    return int(text[:20])


def flag(query: Mapping[str, str], name: str) -> bool:
    """As in Kubernetes, any value but `false` and `0` is true, and so is an empty one."""
    return query.get(name, "0").lower() not in ("false", "0")


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects to choose a page from."""

    items: list[Stored]
    revision: int
    limit: int
    is_countable: bool

    @property
    def enough(self) -> int | None:
        """How many chosen objects tell whether there is another page; None if all have to be counted."""
        return self.limit + 1 if self.limit and not self.is_countable else None

    def page(self, chosen: list[Stored]) -> ListPage:
        metadata: Object = {"resourceVersion": str(self.revision)}
        if not self.limit or len(chosen) <= self.limit:
            return ListPage(chosen, metadata)
        metadata["continue"] = _write_token(self.revision, chosen[self.limit - 1])
        if self.is_countable:
            metadata["remainingItemCount"] = len(chosen) - self.limit
        return ListPage(chosen[: self.limit], metadata)


def listing(store: Store, resource: ServedResource, query: Mapping[str, str]) -> Listing:
    """Raises BadRequest, ResourceExpired, ResourceVersionTooLarge."""
    token = _read_token(query["continue"]) if query.get("continue") else None
    revision = _revision(store, query) if token is None else token.revision
    limit = number(query, "limit") or 0
    items = _at(store, resource, revision, token is not None)
    if token is not None:
        items = items[bisect_right(items, (token.namespace, token.name), key=lambda item: item.key) :]
    return Listing(items, revision, limit, is_countable=not _has_selectors(query))


def page(store: Store, resource: ServedResource, chosen: Selection, query: Mapping[str, str]) -> ListPage:
    """A page of a list. Raises BadRequest, ResourceExpired, ResourceVersionTooLarge."""
    held = listing(store, resource, query)
    return held.page(list(islice(filter(chosen, held.items), held.enough)))


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


def _write_token(revision: int, last: Stored) -> str:
    return urlsafe_b64encode(msgspec.json.encode(_Token(revision, *last.key))).decode()


def _read_token(text: str) -> _Token:
    try:
        return msgspec.json.decode(urlsafe_b64decode(text), type=_Token)
    except (NotBase64, ValueError, msgspec.DecodeError) as error:
        raise BadRequest("continue key is not valid") from error
