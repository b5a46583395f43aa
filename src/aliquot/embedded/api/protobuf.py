"""Bodies in Kubernetes' protobuf, which kubectl sends for `create deployment`, `create namespace` and such.

The table in `schema` says what the numbers mean. Unknown fields are skipped. Responses are always JSON.
"""

import struct
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from aliquot.apiserver.objects import Object, timestamp
from aliquot.apiserver.statuses import BadRequest, UnsupportedMediaType
from aliquot.embedded.api.schema.table import MESSAGES, Cardinality, Field, Message, message_of

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}

_Raw: TypeAlias = bytes | int


def decode(body: bytes) -> Object:
    """The object in the body. Raises BadRequest, or UnsupportedMediaType for an unknown kind."""
    if not body.startswith(_MAGIC):
        raise BadRequest("the body of the request is not Kubernetes protobuf")
    envelope = dict(_fields(body[len(_MAGIC) :]))
    named = {_ENVELOPE[number]: _text(raw) for number, raw in _fields(_bytes(envelope.get(1, b""))) if number in (1, 2)}
    message = _message(named)
    return {**named, **_read(_bytes(envelope.get(2, b"")), message)}


_ENVELOPE = {1: "apiVersion", 2: "kind"}


def _message(named: Mapping[str, str]) -> Message:
    group, _, version = named.get("apiVersion", "").rpartition("/")
    kind = named.get("kind", "")
    message = MESSAGES["meta.v1.DeleteOptions"] if kind == "DeleteOptions" else message_of(group, version, kind)
    if message is None:
        raise UnsupportedMediaType(f"{kind!r} is not accepted as protobuf: use application/json")
    return message


def _read(body: bytes, message: Message) -> Object:
    found: Object = {}
    for number, raw in _fields(body):
        field = message.by_number.get(number)
        if field is None:
            continue
        if not field.name:
            found |= _read(_bytes(raw), MESSAGES[field.type])
        elif field.shape is Cardinality.LIST:
            found.setdefault(field.name, []).append(_value(raw, field))
        elif field.shape is Cardinality.MAP:
            found.setdefault(field.name, {}).update(_entry(raw, field))
        else:
            value = _value(raw, field)
            # Go writes 0, false and "" where JSON omits the field
            if field.nullable or value not in ("", 0, None):
                found[field.name] = value
    return found


def _value(raw: _Raw, field: Field) -> Any:
    message = MESSAGES.get(field.type)
    return _READERS[field.type](raw) if message is None else _read(_bytes(raw), message)


def _entry(raw: _Raw, field: Field) -> Object:
    pair = dict(_fields(_bytes(raw)))
    return {_text(pair.get(1, b"")): _value(pair.get(2, b""), field)}


# -- the wire


def _fields(body: bytes) -> Iterator[tuple[int, _Raw]]:
    position = 0
    while position < len(body):
        tag, position = _varint(body, position)
        value, position = _wire_value(body, position, tag & 7)
        yield tag >> 3, value


def _wire_value(body: bytes, position: int, wire_type: int) -> tuple[_Raw, int]:
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


# -- plain types


def _bytes(raw: _Raw) -> bytes:
    if isinstance(raw, int):
        raise BadRequest("the protobuf body has a number instead of a string")
    return raw


def _text(raw: _Raw) -> str:
    try:
        return _bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the protobuf body has a string that is not UTF-8") from error


def _integer(raw: _Raw) -> int:
    if not isinstance(raw, int):
        raise BadRequest("the protobuf body has a string instead of a number")
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _double(raw: _Raw) -> float:
    (number,) = struct.unpack("<d", _bytes(raw).ljust(8, b"\0")[:8])
    return float(number)


def _base64(raw: _Raw) -> str:
    return b64encode(_bytes(raw)).decode()


def _json(raw: _Raw) -> Any:
    inner = dict(_fields(_bytes(raw))).get(1, b"null")
    try:
        return msgspec.json.decode(_bytes(inner))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the protobuf body has a part that is not JSON: {error}") from error


def _quantity(raw: _Raw) -> str:
    return _text(dict(_fields(_bytes(raw))).get(1, b""))


def _int_or_text(raw: _Raw) -> int | str:
    parts = dict(_fields(_bytes(raw)))
    return _text(parts.get(3, b"")) if parts.get(1) else _integer(parts.get(2, 0))


def _moment(raw: _Raw) -> datetime | None:
    parts = dict(_fields(_bytes(raw)))
    if not parts:
        return None
    try:
        return datetime.fromtimestamp(_integer(parts.get(1, 0)) + _integer(parts.get(2, 0)) / 1e9, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise BadRequest("the protobuf body has an invalid time") from error


def _time(raw: _Raw) -> str | None:
    moment = _moment(raw)
    return None if moment is None else timestamp(moment)


def _micro_time(raw: _Raw) -> str | None:
    moment = _moment(raw)
    return None if moment is None else timestamp(moment, fraction=True)


def _texts(raw: _Raw) -> list[str]:
    return [_text(item) for _, item in _fields(_bytes(raw))]


_READERS: dict[str, Callable[[_Raw], Any]] = {
    "string": _text,
    "int": _integer,
    "bool": bool,
    "bytes": _base64,
    "number": _double,
    "Quantity": _quantity,
    "IntOrString": _int_or_text,
    "Time": _time,
    "MicroTime": _micro_time,
    "FieldsV1": _json,
    "RawExtension": _json,
    "ExtraValue": _texts,
}
