"""Turns a body into a new object: name, identity, defaults, and validation."""

from datetime import datetime
from random import Random
from uuid import UUID

from aliquot.apiserver.objects import Object, text_at, timestamp, with_metadata, without_nulls
from aliquot.apiserver.statuses import BadRequest, Conflict, Invalid, Unexplained
from aliquot.embedded.api import shapes
from aliquot.embedded.api.resources import WritableResource
from aliquot.embedded.api.validation import metadata_errors

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_LONGEST_GENERATED_BASE = 63 - _SUFFIX_LENGTH


def readable(resource: WritableResource, body: Object, namespace: str) -> Object:
    """The body as an object of this resource in this namespace. Raises BadRequest."""
    kind, version = body.get("kind"), body.get("apiVersion")
    if kind not in (None, "", resource.kind) or version not in (None, "", resource.api_version):
        asked = f"{resource.kind} of {resource.api_version}"
        raise BadRequest(f"the object provided is a {kind!r} of {version!r} and not a {asked}")
    obj = without_nulls(body)
    shapes.check(obj, resource.strategy.shape, resource.kind)
    return _placed(resource, obj, namespace)


def _placed(resource: WritableResource, obj: Object, namespace: str) -> Object:
    named = text_at(obj, "metadata", "namespace")
    if resource.namespaced and named and named != namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    typed = {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
    return with_metadata(typed, namespace=namespace or None, selfLink=None)


def new_object(resource: WritableResource, obj: Object, at: datetime, random: Random) -> Object:
    """The object as it is first stored. Raises Invalid, BadRequest, Unexplained."""
    if text_at(obj, "metadata", "resourceVersion"):
        raise Unexplained("resourceVersion should not be set on objects to be created")
    strategy = resource.strategy
    born = _with_identity(resource, obj, at, random)
    complete = strategy.defaults(born)
    errors = [*metadata_errors(complete), *strategy.errors(complete)]
    if errors:
        raise Invalid(resource.group, resource.kind, text_at(complete, "metadata", "name"), errors)
    return strategy.on_create(complete)


def _with_identity(resource: WritableResource, obj: Object, at: datetime, random: Random) -> Object:
    return with_metadata(
        obj,
        name=_name(obj, random),
        uid=str(UUID(int=random.getrandbits(128), version=4)),
        creationTimestamp=timestamp(at),
        deletionTimestamp=None,
        deletionGracePeriodSeconds=None,
        generation=1 if resource.strategy.counts_generations else None,
    )


def _name(obj: Object, random: Random) -> str | None:
    name, base = text_at(obj, "metadata", "name"), text_at(obj, "metadata", "generateName")
    if name or not base:
        return name or None
    suffix = "".join(random.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
    return base[:_LONGEST_GENERATED_BASE] + suffix


def refuse_other_uid(resource: WritableResource, current: Object, uid: str) -> None:
    """Raises Conflict if the object's UID is not the expected one."""
    present = text_at(current, "metadata", "uid")
    if uid and uid != present:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {present}"
        raise Conflict(resource.group, resource.plural, text_at(current, "metadata", "name"), why)
