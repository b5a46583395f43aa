"""The table as OpenAPI v3 schemas, named as the real server names them."""

from collections.abc import Iterable

from aliquot.embedded.api.objects import Object
from aliquot.embedded.api.schema.table import MESSAGES, Field, Message, Shape

_PLAIN: dict[str, Object] = {
    "string": {"type": "string"},
    "int": {"type": "integer", "format": "int64"},
    "number": {"type": "number", "format": "double"},
    "bool": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "IntOrString": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
    "FieldsV1": {"type": "object"},
    "RawExtension": {"type": "object"},
    "ExtraValue": {"type": "array", "items": {"type": "string"}},
}
_TYPE_META: Object = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}


def schemas(kinds: Iterable[tuple[Message, Object]]) -> Object:
    """The schemas of these messages, each with its group, version and kind, and of whatever they hold."""
    found: Object = {}
    for message, named in kinds:
        own = _schema(message)
        properties = {**_TYPE_META, **own["properties"]}
        found[component(message.name)] = {
            **own,
            "description": f"{named['kind']}, as the embedded cluster keeps it.",
            "properties": properties,
            "x-kubernetes-group-version-kind": [named],
        }
        waiting = _used(message)
        while waiting:
            name = waiting.pop()
            if component(name) not in found:
                found[component(name)] = _schema(MESSAGES[name])
                waiting += _used(MESSAGES[name])
    return found


def component(name: str) -> str:
    root = "io.k8s.apimachinery.pkg.apis" if name.startswith("meta.") else "io.k8s.api"
    return f"{root}.{name}"


def reference(name: str) -> Object:
    return {"$ref": f"#/components/schemas/{component(name)}"}


def _used(message: Message) -> list[str]:
    return [field.type for field in message.fields.values() if field.type in MESSAGES]


def _schema(message: Message) -> Object:
    return {
        "type": "object",
        "description": "",
        "properties": {name: _property(field) for name, field in message.fields.items()},
    }


def _property(field: Field) -> Object:
    inner = {"allOf": [reference(field.type)]} if field.type in MESSAGES else _PLAIN[field.type]
    if field.shape is Shape.MAP:
        return {"type": "object", "additionalProperties": inner}
    if field.shape is Shape.ONE:
        return inner
    found: Object = {"type": "array", "items": inner}
    if field.merge_key is not None:
        found["x-kubernetes-patch-strategy"] = "merge"
        found |= {"x-kubernetes-patch-merge-key": field.merge_key} if field.merge_key else {}
    if field.keys is None:
        return {**found, "x-kubernetes-list-type": "atomic"} if field.atomic else found
    if not field.keys:
        return {**found, "x-kubernetes-list-type": "set"}
    return {**found, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(field.keys)}
