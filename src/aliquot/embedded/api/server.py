"""HTTP: finds the target of a path and answers with JSON, errors as `Status` objects."""

from collections.abc import Callable
from contextlib import aclosing, suppress

from aiohttp import web

from aliquot.apiserver import lists
from aliquot.apiserver.answers import Presenter, encode
from aliquot.apiserver.eventlog import Stored
from aliquot.apiserver.media import JSON, Form, accepted_form
from aliquot.apiserver.objects import Object, dig, key_of, without_nulls
from aliquot.apiserver.statuses import (
    Invalid,
    MethodNotAllowed,
    NoSuchPath,
    StatusError,
    unsupported,
)
from aliquot.apiserver.watching import Watch, options_of
from aliquot.embedded.api import bodies, documents, reviews, routes, scales, shapes, subresources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.field_validation import FieldValidation
from aliquot.embedded.api.identity import User, Users
from aliquot.embedded.api.patches import MERGE_PATCH, patch_of
from aliquot.embedded.api.pod_parts import INTO_A_CONTAINER
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import NAMESPACES
from aliquot.embedded.api.rights import Action, Rights
from aliquot.embedded.api.routes import Target


class RequestHandler:
    """Answers the requests of one sender."""

    def __init__(
        self,
        registry: Registry,
        logs: Callable[[Object], str],
        sender: User,
        users: Users,
        rights: Rights,
        warn: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._logs = logs
        self._sender = sender
        self._users = users
        self._rights = rights
        self._warn = warn

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The response to a request. Raises StatusError."""
        document = documents.answer(request) if request.method in ("GET", "HEAD") else None
        if document is not None:
            return document
        target = routes.parse(request.path)
        if target is None:
            raise NoSuchPath
        self._rights.require(self._sender, _action(request, target))
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
            case _, "status" | "ephemeralcontainers" | "resize":
                if request.method == "GET":
                    stored = self._registry.get(target.resource, target.namespace, target.name)
                    return self._object(request, target, stored)
                return await self._update(request, target)
            case _, "scale":
                return await self._scale(request, target)
            case "pods", "log":
                stored = self._registry.get(target.resource, target.namespace, target.name)
                return web.Response(text=subresources.log_part(self._logs(stored.obj), request.query))
            case "pods", into if into in INTO_A_CONTAINER:
                self._registry.get(target.resource, target.namespace, target.name)
                subresources.refuse_to_enter(into)
            case "bindings", _:
                return await self._pod_action(request, target)
            case _, "":
                review = await bodies.read_object(request)
                kind = target.resource.kind
                return _json(reviews.answer(kind, review, self._sender, self._users, self._rights), 201)
        return await self._pod_action(request, target)

    async def _scale(self, request: web.Request, target: Target) -> web.Response:
        if request.method == "GET":
            stored = self._registry.get(target.resource, target.namespace, target.name)
            return _json(scales.scale_of(stored.obj))
        if request.method == "PUT":
            body = await bodies.read_object(request)
            patch = patch_of(MERGE_PATCH, body)
        else:
            patch = patch_of(*await bodies.read_patch(request))
        stored = scales.change(self._registry, target, patch, dry_run=_dry_run(request))
        return _json(scales.scale_of(stored.obj))

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
            form=accepted_form(request.headers.get("Accept", ""), is_list=not target.name) or Form.OBJECT,
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
        validation = FieldValidation(target.resource, request.query, self._warn)
        body = validation.body(await bodies.read_object(request))
        dry_run = _dry_run(request)
        created = self._registry.create(target.resource, target.namespace, body, dry_run=dry_run)
        return self._object(request, target, created, 201)

    async def _update(self, request: web.Request, target: Target) -> web.Response:
        resource, namespace, name, part = target.resource, target.namespace, target.name, target.subresource
        dry_run = _dry_run(request)
        validation = FieldValidation(resource, request.query, self._warn)
        if request.method == "PUT":
            code = 200 if self._registry.store.get(resource.collection, (namespace, name)) is not None else 201
            body = validation.body(await bodies.read_object(request))
            stored = self._registry.replace(resource, namespace, name, body, part=part, dry_run=dry_run)
            return self._object(request, target, stored, code)
        media, body = await bodies.read_patch(request)
        patch = validation.patch(body, patch_of(media, body))
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
    return routes.verb_of(request.method, target, watch=lists.flag(request.query, "watch"))


def _action(request: web.Request, target: Target) -> Action:
    resource = target.resource
    # a role in a namespace can grant rights to the namespace itself
    namespace = target.name if resource is NAMESPACES else target.namespace
    verb = _verb(request, target)
    return Action(verb, resource.plural, resource.group, target.subresource, namespace, target.name)


def _refuse_other_verbs(request: web.Request, target: Target) -> None:
    sub = target.resource.subresource(target.subresource) if target.subresource else None
    verbs = sub.verbs if sub is not None else target.resource.verbs
    everywhere = target.resource.namespaced and not target.namespace
    if _verb(request, target) not in verbs or (everywhere and request.method == "POST"):
        raise MethodNotAllowed


def _dry_run(request: web.Request) -> bool:
    asked = request.query.getall("dryRun", [])
    if any(value != "All" for value in asked):
        options = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
        error = unsupported("dryRun", asked, ("All",))
        raise Invalid("meta.k8s.io", options.get(request.method, "DeleteOptions"), "", [error])
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


def refusal(error: StatusError) -> web.Response:
    seconds = dig(error.details, "retryAfterSeconds")
    response = _json(error.status(), error.code)
    if seconds is not None:
        response.headers["Retry-After"] = str(seconds)
    return response


def _json(value: Object, code: int = 200) -> web.Response:
    return web.Response(body=encode(value), status=code, content_type=JSON)
