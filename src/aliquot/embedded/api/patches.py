"""The patch types of a PATCH request. Each is a pure function from document and patch to a new document."""

from collections.abc import Callable
from typing import Any, TypeAlias

from aliquot.apiserver.objects import Object
from aliquot.apiserver.statuses import BadRequest, UnprocessablePatch
from aliquot.embedded.api.strategic import strategic_merge

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

Patch: TypeAlias = Callable[[Object], Object]
"""Turns the current object into the patched one."""


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def json_patch(document: Any, operations: list[Object]) -> Any:
    """RFC 6902. Raises BadRequest for a malformed operation, UnprocessablePatch for one that does not apply."""
    for operation in operations:
        document = _operate(document, operation)
    return document


def patch_of(content_type: str, body: Any) -> Patch:
    """The patch in a request's body. Raises BadRequest if the body is not of that type."""
    if content_type == JSON_PATCH:
        if not isinstance(body, list) or not all(isinstance(operation, dict) for operation in body):
            raise BadRequest("a JSON patch must be a list of operations")
        return lambda document: _object(json_patch(document, body))
    if not isinstance(body, dict):
        raise BadRequest("a merge patch must be an object")
    if content_type == STRATEGIC_PATCH:
        return lambda document: _object(strategic_merge(document, body))
    return lambda document: _object(merge(document, body))


def _object(patched: Any) -> Object:
    if not isinstance(patched, dict):
        raise UnprocessablePatch("the patch leaves no object")
    return patched


def _operate(document: Any, operation: Object) -> Any:
    name, path = operation.get("op"), _pointer(operation.get("path"))
    match name:
        case "add" | "replace" | "test":
            return _with_value(document, name, path, operation)
        case "remove":
            return _removed(document, path)
        case "move":
            source = _pointer(operation.get("from"))
            return _added(_removed(document, source), path, _found(document, source))
        case "copy":
            return _added(document, path, _found(document, _pointer(operation.get("from"))))
    raise BadRequest(f"unknown JSON patch operation {name!r}")


def _with_value(document: Any, name: str, path: list[str], operation: Object) -> Any:
    if "value" not in operation:
        raise BadRequest(f"the JSON patch operation {name!r} needs a value")
    value = operation["value"]
    if name == "add":
        return _added(document, path, value)
    if name == "replace":
        return _replaced(document, path, value)
    if _found(document, path) != value:
        raise UnprocessablePatch(f"testing path /{'/'.join(path)} failed: it has another value")
    return document


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise BadRequest(f"{text!r} is not a JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _found(document: Any, path: list[str]) -> Any:
    for step in path:
        document = _child(document, step)
    return document


def _child(parent: Any, step: str) -> Any:
    if isinstance(parent, dict) and step in parent:
        return parent[step]
    if isinstance(parent, list):
        return parent[_position(parent, step, len(parent) - 1)]
    raise UnprocessablePatch(f"the JSON patch names {step!r}, which does not exist")


def _position(items: list[Any], step: str, last: int) -> int:
    if step == "-" and last == len(items):
        return last
    if not step.isascii() or not step.isdigit() or len(step) > 9 or int(step) > last:
        raise UnprocessablePatch(f"the JSON patch names position {step!r} of a list of {len(items)}")
    return int(step)


def _rebuilt(document: Any, path: list[str], change: Callable[[Any, str], Any]) -> Any:
    """The document with the parent of the path's last step replaced by `change(parent, step)`."""
    step, *rest = path
    if not rest:
        return change(document, step)
    inner = _rebuilt(_child(document, step), rest, change)
    if isinstance(document, dict):
        return {**document, step: inner}
    position = int(step)
    return [*document[:position], inner, *document[position + 1 :]]


def _added(document: Any, path: list[str], value: Any) -> Any:
    def change(parent: Any, step: str) -> Any:
        if isinstance(parent, dict):
            return {**parent, step: value}
        if isinstance(parent, list):
            position = _position(parent, step, len(parent))
            return [*parent[:position], value, *parent[position:]]
        raise UnprocessablePatch(f"the JSON patch adds {step!r} to something that holds nothing")

    return _rebuilt(document, path, change) if path else value


def _removed(document: Any, path: list[str]) -> Any:
    def change(parent: Any, step: str) -> Any:
        _child(parent, step)
        if isinstance(parent, dict):
            return {name: value for name, value in parent.items() if name != step}
        return [*parent[: int(step)], *parent[int(step) + 1 :]]

    return _rebuilt(document, path, change) if path else None


def _replaced(document: Any, path: list[str], value: Any) -> Any:
    def change(parent: Any, step: str) -> Any:
        _child(parent, step)
        if isinstance(parent, dict):
            return {**parent, step: value}
        return [*parent[: int(step)], value, *parent[int(step) + 1 :]]

    return _rebuilt(document, path, change) if path else value
