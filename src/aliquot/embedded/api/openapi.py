"""OpenAPI v3: the fields of every kind for `kubectl explain`, and as much of the paths as kubectl looks at.

kubectl looks for the `fieldValidation` parameter of PATCH; where it finds it, it leaves the checking of fields to the
server. Fields have types and no descriptions. Of OpenAPI v2 there is an empty document only.
"""

from collections.abc import Iterator
from functools import cache

from aliquot.embedded.api.objects import Object
from aliquot.embedded.api.resources import RESOURCES, Resource
from aliquot.embedded.api.schema.openapi import schemas
from aliquot.embedded.api.schema.table import Message, message_of

PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
EMPTY_PROTOBUF_V2 = b"\x0a\x032.0"
"""The document of version "2.0" with nothing in it."""

_ROOT = "/openapi/v3"
_INFO: Object = {"title": "Aliquot's embedded Kubernetes API", "version": "v1"}
_FIELD_VALIDATION: Object = {
    "name": "fieldValidation",
    "in": "query",
    "description": "What becomes of fields that nobody knows: Strict refuses, Warn drops with a warning, Ignore drops.",
    "schema": {"type": "string", "uniqueItems": True},
}


def document_v2() -> Object:
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}


@cache
def answer(path: str) -> Object | None:
    """The document at a path below `/openapi/v3`, None where there is none. It is shared: do not change it."""
    prefixes = list(dict.fromkeys(resource.prefix for resource in RESOURCES))
    if path == _ROOT:
        return {"paths": {prefix[1:]: {"serverRelativeURL": _ROOT + prefix} for prefix in prefixes}}
    for prefix in prefixes:
        if path == _ROOT + prefix:
            return _group_document(prefix)
    return None


def _group_document(prefix: str) -> Object:
    patchable = [resource for resource in RESOURCES if resource.prefix == prefix and "patch" in resource.verbs]
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": {_path(resource): {"patch": _operation(resource)} for resource in patchable},
        "components": {"schemas": schemas(_kinds(prefix))},
    }


def _kinds(prefix: str) -> Iterator[tuple[Message, Object]]:
    for resource in RESOURCES:
        message = message_of(resource.group, resource.version, resource.kind)
        if resource.prefix == prefix and message is not None:
            yield message, _group_version_kind(resource)


def _path(resource: Resource) -> str:
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{resource.prefix}{scope}/{resource.plural}/{{name}}"


def _operation(resource: Resource) -> Object:
    return {
        "operationId": f"patch{resource.kind}",
        "parameters": [_FIELD_VALIDATION],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _group_version_kind(resource),
    }


def _group_version_kind(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}
