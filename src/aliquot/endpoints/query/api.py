"""The query API over HTTP: documents, objects, lists and watches, for each caller by its own rights in Kubernetes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from secrets import randbelow
from typing import NoReturn
from urllib.parse import parse_qsl

from aliquot.apiserver import lists
from aliquot.apiserver.answers import Presenter
from aliquot.apiserver.eventlog import Stored
from aliquot.apiserver.media import JSON, Form, accepted_form
from aliquot.apiserver.statuses import (
    Forbidden,
    ForbiddenPath,
    MethodNotAllowed,
    NoSuchPath,
    NotAcceptable,
    NotFound,
    StatusError,
    Unavailable,
)
from aliquot.apiserver.store import Store
from aliquot.apiserver.tables import check_include
from aliquot.apiserver.watching import Watch, options_of
from aliquot.clock import Clock
from aliquot.control import ControlPlane
from aliquot.endpoints import asgi
from aliquot.endpoints.asgi import Caller, CallerKind
from aliquot.endpoints.own_rights import OwnRights
from aliquot.endpoints.places import Places
from aliquot.endpoints.query.discovery import discovery
from aliquot.endpoints.query.documents import preferred
from aliquot.endpoints.query.feed import STEP, Feed, first_revision
from aliquot.endpoints.query.frames import OriginalPresenter, is_original
from aliquot.endpoints.query.openapi import openapi
from aliquot.endpoints.query.paths import Target, action_of, target_of
from aliquot.endpoints.query.resources import QueryResource
from aliquot.endpoints.status_answers import status_answer, unavailable
from aliquot.endpoints.stretches import Stretches
from aliquot.errors import Refused
from aliquot.kube.reviews import Action
from aliquot.model.bounds import LONGEST_PATH, MAX_LISTS_OF_CALLER, MAX_QUERY_EVENTS, MAX_READS

_STRETCH_SECONDS = 0.005
_BATCH = 64
_WATCH_SECONDS = 1800
"""As in other API servers, a watch without a limit ends after 30 to 60 minutes: its caller may have lost the right."""


@dataclass(frozen=True, slots=True)
class _Presentation:
    resource: QueryResource
    form: Form
    include: str = ""
    is_original: bool = False


class QueryApi:
    """`run` it alongside the plane. `instance` names this process in resourceVersions; a random one by default."""

    def __init__(self, plane: ControlPlane, rights: OwnRights, instance: int | None = None) -> None:
        self._rights = rights
        self._clock: Clock = plane.clock
        first = first_revision(plane.clock, randbelow(STEP) if instance is None else instance)
        self.store = Store(MAX_QUERY_EVENTS, first=first, step=STEP, keeps_dictionaries=False)
        self.feed = Feed(plane, self.store)
        self._documents = {**discovery(), **openapi()}
        self._turn = asyncio.Lock()
        self._places = Places(MAX_READS, MAX_LISTS_OF_CALLER)
        self._presenters: dict[_Presentation, Presenter] = {}
        """Few: a resource has a handful of presentations. Watches with the same one share its frames."""

    async def run(self) -> NoReturn:
        await self.feed.run()

    def routes(self) -> dict[tuple[str, str], asgi.Handler]:
        return {asgi.OTHERWISE: asgi.OwnRightsHandler(self.answer, unavailable, self.refusal_of)}

    async def refusal_of(self, call: asgi.Call) -> asgi.Response | None:
        """The answer to a caller without the right to what it calls for."""
        try:
            if len(call.path) > LONGEST_PATH:
                raise NoSuchPath
            await self._require(call.caller, action_of(call.method, call.path, _query_of(call)))
        except StatusError as error:
            return status_answer(error)
        except Refused as error:
            return unavailable(str(error))
        return None

    async def refusal_of_verb(self, call: asgi.Call) -> asgi.Response | None:
        """The same for what the port serves besides. Replicas have checked that already."""
        return None if CallerKind.REPLICA in call.caller.kinds else await self.refusal_of(call)

    async def answer(self, call: asgi.Call) -> asgi.Response:
        """The answer to a caller that `refusal_of` does not refuse."""
        try:
            return await self._answer(call)
        except StatusError as error:
            return status_answer(error)
        except Refused as error:
            return unavailable(str(error))

    async def _answer(self, call: asgi.Call) -> asgi.Response:
        """Raises StatusError, and Refused if too many lists are in progress."""
        query = _query_of(call)
        path = call.path.rstrip("/") or "/"
        if path in self._documents:
            return self._document(call, path)
        target = target_of(path)
        if target is None:
            raise NoSuchPath
        if call.method != "GET":
            raise MethodNotAllowed
        if not self.feed.is_complete:
            raise Unavailable("this server has not seen the whole cluster yet")
        return await self._objects(call, target, query)

    async def _require(self, caller: Caller, action: Action) -> None:
        if await self._rights.allow(caller, action):
            return
        if action.path:
            raise ForbiddenPath(caller.name, action.verb, action.path)
        scope = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
        what = f'resource "{action.resource}" in API group "{action.group}" {scope}'
        raise Forbidden(action.group, action.resource, action.name, f'User "{caller.name}" cannot {action.verb} {what}')

    def _document(self, call: asgi.Call, path: str) -> asgi.Response:
        if call.method not in ("GET", "HEAD"):
            raise MethodNotAllowed
        chosen = preferred(self._documents[path], _accept(call))
        tag = f'"{chosen.etag}"'.encode()
        headers = ((b"etag", tag), (b"vary", b"Accept"))
        if tag in (part.strip() for part in call.headers.get(b"if-none-match", b"").split(b",")):
            return asgi.Response(b"", 304, headers=headers)
        return asgi.Response(chosen.body, content_type=chosen.content_type.encode(), headers=headers)

    # -- objects

    async def _objects(self, call: asgi.Call, target: Target, query: Mapping[str, str]) -> asgi.Response:
        form = accepted_form(_accept(call), is_list=not target.name)
        if form is None:
            raise NotAcceptable(JSON)
        include = query.get("includeObject", "")
        check_include(include)
        if target.name:
            presenter = self._presenter(_Presentation(target.resource, form, include))
            stored = self.store.get(target.resource.collection, (target.namespace, target.name))
            if stored is None:
                raise NotFound(target.resource.group, target.resource.plural, target.name)
            return asgi.Response(presenter.one(stored) + b"\n")
        if lists.flag(query, "watch"):
            original = is_original(target.resource, form, query)
            return self._watch(target, _Presentation(target.resource, form, include, original), query)
        presenter = self._presenter(_Presentation(target.resource, form, include))
        with self._places.place_for(call):
            return await self._list(target, presenter, query)

    def _presenter(self, wanted: _Presentation) -> Presenter:
        made = self._presenters.get(wanted)
        if made is None:
            if wanted.is_original:
                made = OriginalPresenter(wanted.resource, self._now)
            else:
                made = Presenter(wanted.resource, form=wanted.form, include=wanted.include, clock=self._now)
            self._presenters[wanted] = made
        return made

    def _watch(self, target: Target, wanted: _Presentation, query: Mapping[str, str]) -> asgi.Response:
        chosen = lists.selection(target.resource, target.namespace, "", query)
        options = options_of(query)
        if options.seconds is None:
            options = replace(options, seconds=_WATCH_SECONDS + randbelow(_WATCH_SECONDS))
        watch = Watch(self.store, target.resource, chosen, self._presenter(wanted), options)
        return asgi.Response(b"", stream=watch.frames())

    async def _list(self, target: Target, presenter: Presenter, query: Mapping[str, str]) -> asgi.Response:
        """Schedulers are answered between two stretches of a long list, and of one list at a time."""
        chosen = lists.selection(target.resource, target.namespace, "", query)
        async with self._turn:
            listing, found, parts = lists.listing(self.store, target.resource, query), list[Stored](), list[bytes]()
            async for batch in self._with_pauses(listing.items):
                found += filter(chosen, batch)
                if listing.enough is not None and len(found) >= listing.enough:
                    break
            page = listing.page(found[: listing.enough])
            async for batch in self._with_pauses(page.items):
                parts += map(presenter.item, batch)
            return asgi.Response(presenter.whole(parts, page.metadata, b"\n"))

    async def _with_pauses(self, items: list[Stored]) -> AsyncIterator[list[Stored]]:
        stretches = Stretches(self._clock, _STRETCH_SECONDS)
        for begin in range(0, len(items), _BATCH):
            yield items[begin : begin + _BATCH]
            await stretches.pause_if_due()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC)


def _query_of(call: asgi.Call) -> dict[str, str]:
    """Of a name that comes twice, the first value counts, as in Go."""
    query: dict[str, str] = {}
    for name, value in parse_qsl(call.query, keep_blank_values=True):
        query.setdefault(name, value)
    return query


def _accept(call: asgi.Call) -> str:
    return call.headers.get(b"accept", b"").decode("latin-1")
