"""HTTP: one handler that finds what a path names and answers for it, always with JSON, errors as `Status` objects."""

from collections.abc import Callable
from contextlib import aclosing, suppress

import structlog
from aiohttp import web

from aliquot.embedded.api import bodies, documents, lists, routes, shapes, subresources
from aliquot.embedded.api.answers import JSON, Presenter, encode, wants_table
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.eventlog import Stored
from aliquot.embedded.api.objects import Object, key_of, without_nulls
from aliquot.embedded.api.patches import APPLY_PATCH, patch_of
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.routes import Target
from aliquot.embedded.api.statuses import BadRequest, MethodNotAllowed, NoSuchPath, StatusError
from aliquot.embedded.api.watching import Watch, options_of

_log = structlog.get_logger()


class Server:
    """Answers requests about a registry's objects."""

    def __init__(self, registry: Registry, logs: Callable[[Object], str]) -> None:
        self._registry = registry
        self._logs = logs

    def application(self) -> web.Application:
        application = web.Application(client_max_size=bodies.MOST_BYTES)
        application.router.add_route("*", "/{path:.*}", self._answer)
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._dispatch(request)
        except StatusError as error:
            return _json(error.status(), error.code)
        except RecursionError:
            return _json(BadRequest("the body of the request is nested too deeply").status(), 400)
        except Exception:
            _log.exception("cannot answer", method=request.method, path=request.path)
            return _json(StatusError("Internal error occurred").status(), 500)

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        document = documents.answer(request) if request.method in ("GET", "HEAD") else None
        if document is not None:
            return document
        target = routes.parse(request.path)
        if target is None:
            raise NoSuchPath
        _refuse_other_verbs(request, target)
        if target.subresource or target.resource.verbs == ("create",):
            return await self._special(request, target)
        return await self._plain(request, target)

    async def _plain(self, request: web.Request, target: Target) -> web.StreamResponse:
        match _verb(request, target):
            case "watch":
                return await self._watch(request, target)
            case "list":
                return self._list(request, target)
            case "get":
                stored = self._registry.get(target.resource, target.namespace, target.name)
                return self._object(request, target, stored)
            case "create":
                return await self._create(request, target)
            case "deletecollection":
                return await self._delete_collection(request, target)
            case "delete":
                return await self._delete(request, target)
        return await self._update(request, target)

    async def _special(self, request: web.Request, target: Target) -> web.StreamResponse:
        match target.resource.plural, target.subresource:
            case _, "status":
                if request.method == "GET":
                    stored = self._registry.get(target.resource, target.namespace, target.name)
                    return self._object(request, target, stored)
                return await self._update(request, target)
            case "pods", "log":
                stored = self._registry.get(target.resource, target.namespace, target.name)
                return web.Response(text=self._logs(stored.obj))
            case "selfsubjectaccessreviews" | "subjectaccessreviews", _:
                review = await bodies.read_object(request)
                return _json({**review, "status": {"allowed": True}}, 201)
            case "tokenreviews", _:
                review = await bodies.read_object(request)
                unknown = {"authenticated": False, "error": "the embedded cluster gives out no tokens"}
                return _json({**review, "status": unknown}, 201)
        return await self._pod_action(request, target)

    async def _pod_action(self, request: web.Request, target: Target) -> web.Response:
        body, dry_run = await bodies.read_object(request), _dry_run(request)
        if target.subresource == "eviction":
            done = subresources.evict(self._registry, target.namespace, target.name, body, dry_run=dry_run)
        else:
            name = target.name or None
            done = subresources.bind(self._registry, target.namespace, name, body, dry_run=dry_run)
        return _json(done, 201)

    def _presenter(self, request: web.Request, target: Target) -> Presenter:
        return Presenter(
            target.resource,
            as_table=wants_table(request.headers.get("Accept", "")),
            include=request.query.get("includeObject", ""),
            clock=self._registry.clock,
        )

    def _object(self, request: web.Request, target: Target, stored: Stored, code: int = 200) -> web.Response:
        body = self._presenter(request, target).one(stored)
        return web.Response(body=body, status=code, content_type=JSON)

    def _list(self, request: web.Request, target: Target) -> web.Response:
        chosen = lists.selection(target.resource, target.namespace, target.name, request.query)
        page = lists.page(self._registry.store, target.resource, chosen, request.query)
        body = self._presenter(request, target).many(page.items, page.metadata)
        return web.Response(body=body, content_type=JSON)

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        chosen = lists.selection(target.resource, target.namespace, target.name, request.query)
        presenter = self._presenter(request, target)
        watch = Watch(self._registry.store, target.resource, chosen, presenter, options_of(request.query))
        response = web.StreamResponse(headers={"Content-Type": JSON})
        await response.prepare(request)
        async with aclosing(watch.frames()) as frames:
            with suppress(ConnectionResetError):
                async for lines in frames:
                    await response.write(lines)
        return response

    async def _create(self, request: web.Request, target: Target) -> web.Response:
        body = await bodies.read_object(request)
        dry_run = _dry_run(request)
        created = self._registry.create(target.resource, target.namespace, body, dry_run=dry_run)
        return self._object(request, target, created, 201)

    async def _update(self, request: web.Request, target: Target) -> web.Response:
        resource, namespace, name, part = target.resource, target.namespace, target.name, target.subresource
        dry_run = _dry_run(request)
        if request.method == "PUT":
            body = await bodies.read_object(request)
            stored = self._registry.replace(resource, namespace, name, body, part=part, dry_run=dry_run)
            return self._object(request, target, stored)
        media, body = await bodies.read_patch(request)
        patch = patch_of(media, body)
        if media == APPLY_PATCH and not part:
            stored = self._registry.apply(resource, namespace, name, body, patch, dry_run=dry_run)
        else:
            stored = self._registry.patch(resource, namespace, name, patch, part=part, dry_run=dry_run)
        return self._object(request, target, stored)

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        resource = target.resource
        before = self._registry.get(resource, target.namespace, target.name)
        asked = await _delete_request(request)
        after = self._registry.delete(resource, target.namespace, target.name, asked)
        still_there = self._registry.store.get(resource.collection, key_of(before.obj)) is not None
        if resource.strategy.returned_when_deleted or still_there:
            return self._object(request, target, after)
        return _json(_deleted(target, before.obj))

    async def _delete_collection(self, request: web.Request, target: Target) -> web.Response:
        chosen = lists.selection(target.resource, target.namespace, "", request.query)
        page = lists.page(self._registry.store, target.resource, chosen, {})
        asked = await _delete_request(request)
        for item in page.items:
            self._registry.delete(target.resource, *key_of(item.obj), asked)
        return web.Response(body=self._presenter(request, target).many(page.items, page.metadata), content_type=JSON)


def _verb(request: web.Request, target: Target) -> str:
    match request.method:
        case "GET" | "HEAD":
            if lists.flag(request.query, "watch"):
                return "watch"
            return "get" if target.name else "list"
        case "POST":
            return "create" if not target.name or target.subresource else ""
        case "PUT":
            return "update" if target.name else ""
        case "PATCH":
            return "patch" if target.name else ""
        case "DELETE":
            return "delete" if target.name else "deletecollection"
    return ""


def _refuse_other_verbs(request: web.Request, target: Target) -> None:
    sub = target.resource.subresource(target.subresource) if target.subresource else None
    verbs = sub.verbs if sub is not None else target.resource.verbs
    everywhere = target.resource.namespaced and not target.namespace
    if _verb(request, target) not in verbs or (everywhere and request.method == "POST"):
        raise MethodNotAllowed


def _dry_run(request: web.Request) -> bool:
    asked = request.query.getall("dryRun", [])
    if any(value != "All" for value in asked):
        raise BadRequest(f"Invalid dryRun value {asked!r}: the only one is All")
    return bool(asked)


async def _delete_request(request: web.Request) -> DeleteRequest:
    body = without_nulls(await bodies.read_optional_object(request))
    options = shapes.read(body, shapes.DeleteOptions, "DeleteOptions")
    if "gracePeriodSeconds" in request.query:
        options.grace_period_seconds = lists.number(request.query, "gracePeriodSeconds")
    return subresources.delete_request(options, _dry_run(request))


def _deleted(target: Target, obj: Object) -> Object:
    details = {"name": target.name, "group": target.resource.group, "kind": target.resource.plural}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**{name: value for name, value in details.items() if value}, "uid": obj["metadata"]["uid"]},
    }


def _json(value: Object, code: int = 200) -> web.Response:
    return web.Response(body=encode(value), status=code, content_type=JSON)
