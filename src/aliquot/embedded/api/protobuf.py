"""The few objects that kubectl sends only as protobuf (`create namespace`, `create configmap`, `auth can-i` and such).

The field numbers are those of Kubernetes' `generated.proto` files; fields that are not listed are skipped.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from aliquot.embedded.api.objects import Object
from aliquot.embedded.api.statuses import BadRequest, UnsupportedMediaType

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}

_Raw: TypeAlias = bytes | int
_Reader: TypeAlias = Callable[[_Raw, Any], Any]
"""(raw value, what earlier fields of this number gave) -> value"""
_Message: TypeAlias = Mapping[int, tuple[str, _Reader]]


def decode(body: bytes) -> Object:
    """The object in the body. Raises BadRequest, UnsupportedMediaType for a kind that is not listed here."""
    if not body.startswith(_MAGIC):
        raise BadRequest("the body of the request does not begin as protobuf of Kubernetes does")
    envelope = _read(body[len(_MAGIC) :], _ENVELOPE)
    named = envelope.get("typeMeta", {})
    message = _KINDS.get((named.get("apiVersion", ""), named.get("kind", "")))
    if message is None:
        raise UnsupportedMediaType(f"{named.get('kind')!r} is not taken as protobuf here: use application/json")
    return {**named, **_read(envelope.get("raw", b""), message)}


def _read(body: bytes, message: _Message) -> Object:
    found: Object = {}
    for number, raw in _fields(body):
        if number in message:
            name, read = message[number]
            found[name] = read(raw, found.get(name))
    return {name: value for name, value in found.items() if value != ""}


def _fields(body: bytes) -> Iterator[tuple[int, _Raw]]:
    position = 0
    while position < len(body):
        tag, position = _varint(body, position)
        value, position = _value(body, position, tag & 7)
        yield tag >> 3, value


def _value(body: bytes, position: int, wire_type: int) -> tuple[_Raw, int]:
    if wire_type == _VARINT:
        return _varint(body, position)
    if wire_type == _BYTES:
        length, position = _varint(body, position)
    elif wire_type in _FIXED_SIZES:
        length = _FIXED_SIZES[wire_type]
    else:
        raise BadRequest(f"the protobuf body has a field of unknown wire type {wire_type}")
    if position + length > len(body):
        raise BadRequest("the protobuf body ends in the middle of a field")
    return body[position : position + length], position + length


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(body):
            raise BadRequest("the protobuf body ends in the middle of a number")
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise BadRequest("the protobuf body has a number that is too long")


def _as_bytes(raw: _Raw) -> bytes:
    if isinstance(raw, int):
        raise BadRequest("the protobuf body has a number where a text belongs")
    return raw


def _raw(raw: _Raw, _earlier: Any) -> bytes:
    return _as_bytes(raw)


def _text(raw: _Raw, _earlier: Any) -> str:
    try:
        return _as_bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the protobuf body has a text that is not UTF-8") from error


def _texts(raw: _Raw, earlier: Any) -> list[str]:
    return [*(earlier or ()), _text(raw, None)]


def _base64(raw: _Raw, _earlier: Any) -> str:
    return b64encode(_as_bytes(raw)).decode()


def _truth(raw: _Raw, _earlier: Any) -> bool:
    return bool(raw)


def _nested(message: _Message) -> _Reader:
    return lambda raw, _earlier: _read(_as_bytes(raw), message)


def _map(value: _Reader) -> _Reader:
    entry: _Message = {1: ("key", _text), 2: ("value", value)}

    def read(raw: _Raw, earlier: Any) -> dict[str, str]:
        pair = _read(_as_bytes(raw), entry)
        return {**(earlier or {}), pair.get("key", ""): pair.get("value", "")}

    return read


_ENVELOPE: _Message = {
    1: ("typeMeta", _nested({1: ("apiVersion", _text), 2: ("kind", _text)})),
    2: ("raw", _raw),
}
_METADATA: dict[int, tuple[str, _Reader]] = {
    1: (
        "metadata",
        _nested(
            {
                1: ("name", _text),
                2: ("generateName", _text),
                3: ("namespace", _text),
                5: ("uid", _text),
                6: ("resourceVersion", _text),
                11: ("labels", _map(_text)),
                12: ("annotations", _map(_text)),
                14: ("finalizers", _texts),
            }
        ),
    )
}
_RESOURCE_ATTRIBUTES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_REVIEW_SPEC: _Message = {
    1: ("resourceAttributes", _nested({n: (name, _text) for n, name in enumerate(_RESOURCE_ATTRIBUTES, 1)})),
    2: ("nonResourceAttributes", _nested({1: ("path", _text), 2: ("verb", _text)})),
}
_KINDS: dict[tuple[str, str], _Message] = {
    ("v1", "Namespace"): _METADATA,
    ("v1", "ServiceAccount"): _METADATA,
    ("v1", "ConfigMap"): {
        **_METADATA,
        2: ("data", _map(_text)),
        3: ("binaryData", _map(_base64)),
        4: ("immutable", _truth),
    },
    ("v1", "Secret"): {
        **_METADATA,
        2: ("data", _map(_base64)),
        3: ("type", _text),
        4: ("stringData", _map(_text)),
        5: ("immutable", _truth),
    },
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {**_METADATA, 2: ("spec", _nested(_REVIEW_SPEC))},
}
