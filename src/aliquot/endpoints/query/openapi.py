"""OpenAPI: one document in version 2, and one for each group in version 3."""

from collections.abc import Iterable, Iterator, Mapping

import aliquot
from aliquot.apiserver.media import JSON
from aliquot.apiserver.objects import Object
from aliquot.endpoints.query.discovery import VERSIONS
from aliquot.endpoints.query.documents import Document, Variant, document, plain
from aliquot.endpoints.query.resources import RESOURCES, QueryResource
from aliquot.endpoints.query.schemas import gvk_of, name_of, schemas

_V2, _V3 = "/openapi/v2", "/openapi/v3"
_INFO = {"title": "Aliquot's query API", "version": f"v{aliquot.__version__}"}
_DEFINITIONS, _COMPONENTS = "#/definitions/", "#/components/schemas/"
_QUERY = {
    "continue": "string",
    "fieldSelector": "string",
    "labelSelector": "string",
    "limit": "integer",
    "resourceVersion": "string",
    "resourceVersionMatch": "string",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
    "allowWatchBookmarks": "boolean",
    "watch": "boolean",
}
"""Parameters of a list."""


def openapi() -> Mapping[str, tuple[Variant, ...]]:
    """The documents by path."""
    groups = {f"apis/{group}/{version}": document(_v3(group, version)) for group, version in VERSIONS}
    found = {f"{_V3}/{path}": plain(made) for path, made in groups.items()}
    return {**found, _V3: plain(_index(groups)), _V2: plain(document(_v2()))}


def _index(groups: Mapping[str, Document]) -> Document:
    """The hash in each address lets clients keep a document for ever."""
    urls = {path: {"serverRelativeURL": f"{_V3}/{path}?hash={made.etag}"} for path, made in groups.items()}
    return document({"paths": urls})


def _v2() -> Object:
    paths: Object = {}
    for resource in RESOURCES:
        for path, is_list in _paths(resource):
            operation = _operation(resource, is_list)
            schema = {"$ref": f"{_DEFINITIONS}{_kind(resource, is_list)}"}
            parameters = [{"name": name, "in": "query", "type": kind} for name, kind in _queried(is_list)]
            in_path = [{"name": n, "in": "path", "required": True, "type": "string"} for n in _names(path)]
            paths[path] = {
                "get": {
                    **operation,
                    "consumes": ["*/*"],
                    "produces": [JSON],
                    "schemes": ["https"],
                    "parameters": parameters,
                    "responses": {"200": {"description": "OK", "schema": schema}},
                },
                "parameters": in_path,
            }
    definitions = {name: each for resource in RESOURCES for name, each in schemas(resource, _DEFINITIONS).items()}
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


def _v3(group: str, version: str) -> Object:
    resources = [each for each in RESOURCES if (each.group, each.version) == (group, version)]
    paths: Object = {}
    for resource in resources:
        for path, is_list in _paths(resource):
            schema = {"$ref": f"{_COMPONENTS}{_kind(resource, is_list)}"}
            answer = {"description": "OK", "content": {JSON: {"schema": schema}}}
            queried = [{"name": n, "in": "query", "schema": {"type": t}} for n, t in _queried(is_list)]
            named = [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in _names(path)]
            paths[path] = {
                "get": {**_operation(resource, is_list), "parameters": queried, "responses": {"200": answer}},
                "parameters": named,
            }
    components = {name: each for resource in resources for name, each in schemas(resource, _COMPONENTS).items()}
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": components}}


def _paths(resource: QueryResource) -> Iterator[tuple[str, bool]]:
    """The paths of a resource, and whether each is one of lists."""
    yield f"{resource.prefix}/{resource.plural}", True
    scope = f"{resource.prefix}/namespaces/{{namespace}}" if resource.namespaced else resource.prefix
    if resource.namespaced:
        yield f"{scope}/{resource.plural}", True
    yield f"{scope}/{resource.plural}/{{name}}", False


def _names(path: str) -> Iterable[str]:
    return (name for name in ("namespace", "name") if f"{{{name}}}" in path)


def _queried(is_list: bool) -> Iterable[tuple[str, str]]:
    return _QUERY.items() if is_list else ()


def _kind(resource: QueryResource, is_list: bool) -> str:
    return f"{name_of(resource)}List" if is_list else name_of(resource)


def _operation(resource: QueryResource, is_list: bool) -> Object:
    what = "list or watch objects" if is_list else "read an object"
    return {
        "description": f"{what} of kind {resource.kind}",
        "tags": [resource.group],
        "x-kubernetes-action": "list" if is_list else "get",
        "x-kubernetes-group-version-kind": gvk_of(resource),
    }
