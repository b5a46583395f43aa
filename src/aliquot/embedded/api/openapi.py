"""As much of OpenAPI as kubectl needs to leave the checking of fields to the server.

kubectl looks for the `fieldValidation` parameter of PATCH; where it finds it, it validates nothing itself. There are no
schemas yet, so `kubectl explain` finds nothing, and unknown fields of objects are kept and not refused.
"""

from functools import cache

from aliquot.embedded.api.objects import Object
from aliquot.embedded.api.resources import RESOURCES, Resource

PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
EMPTY_PROTOBUF_V2 = b"\x0a\x032.0"
"""The document of version "2.0" with nothing in it."""

_ROOT = "/openapi/v3"
_INFO: Object = {"title": "Aliquot's embedded Kubernetes API", "version": "v1"}
_FIELD_VALIDATION: Object = {
    "name": "fieldValidation",
    "in": "query",
    "description": "Accepted and not acted on: this server has no schemas.",
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
        "components": {"schemas": {}},
    }


def _path(resource: Resource) -> str:
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{resource.prefix}{scope}/{resource.plural}/{{name}}"


def _operation(resource: Resource) -> Object:
    return {
        "operationId": f"patch{resource.kind}",
        "parameters": [_FIELD_VALIDATION],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
    }
