"""As much of OpenAPI v3 as kubectl needs to validate: the paths that take a PATCH, and no schemas.

kubectl looks for the `fieldValidation` parameter of PATCH. If it finds it, it leaves the validation to the server.
"""

from functools import cache

from aliquot.apiserver.objects import Object
from aliquot.embedded.api.resources import RESOURCES, WritableResource

_ROOT = "/openapi/v3"
_INFO: Object = {"title": "Aliquot's embedded Kubernetes API", "version": "v1"}
_FIELD_VALIDATION: Object = {
    "name": "fieldValidation",
    "in": "query",
    "description": "How to treat unknown fields: Strict refuses, Warn drops with a warning, Ignore drops.",
    "schema": {"type": "string", "uniqueItems": True},
}


@cache
def answer(path: str) -> Object | None:
    """The document at a path below `/openapi/v3`, or None. It is shared: do not change it."""
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
    }


def _path(resource: WritableResource) -> str:
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{resource.prefix}{scope}/{resource.plural}/{{name}}"


def _operation(resource: WritableResource) -> Object:
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
