"""Match JSON keys in any case, at every depth, as Go does."""

from collections.abc import Hashable, Sized
from functools import cache
from operator import is_
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from aliquot.model.bounds import MAX_ITEMS

_T = TypeVar("_T")

_Shape = dict[str, tuple[str, "_Shape | None"]]
"""The keys of an object that we decode, in lower case, with our spelling of each and the shape of its value. A list has
the shape of its items. None for a value without keys of ours, such as labels."""


def read(raw: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Decode JSON; the last spelling of a key wins. Not for more than LARGEST_POD bytes: it takes several times as
    long. Raises msgspec.DecodeError, RecursionError, UnicodeDecodeError."""
    value = msgspec.json.decode(raw)
    spelled = _spelled(value, _shape(cast(Hashable, kind)))
    return msgspec.json.decode(raw, type=kind) if spelled is value else msgspec.convert(spelled, kind)


def _spelled(value: Any, shape: _Shape | None) -> Any:
    """Rename keys to our spelling; return the same object if no key changes."""
    if shape is None:
        return value
    if type(value) is list:
        if len(value) > MAX_ITEMS:
            raise _too_many(value)
        items = [_spelled(item, shape) for item in value]
        return value if all(map(is_, items, value)) else items
    if type(value) is not dict:
        return value
    if len(value) > MAX_ITEMS:
        raise _too_many(value)
    differs, found = False, {}
    for key, inner in value.items():
        name, of = shape.get(key.lower(), (key, None))
        if of is None and type(inner) is dict and len(inner) > MAX_ITEMS:
            raise _too_many(inner)
        found[name] = new = inner if of is None else _spelled(inner, of)
        differs = differs or name != key or new is not inner
    return found if differs else value


def _too_many(items: Sized) -> msgspec.ValidationError:
    return msgspec.ValidationError(f"a list or an object has {len(items)} items; no more than {MAX_ITEMS} are read")


@cache
def _shape(kind: Hashable) -> _Shape | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
        hints = get_type_hints(kind)
        return {name.lower(): (name, _shape(hints[attribute])) for attribute, name in names}
    if get_origin(kind) is dict:
        return None
    return next((shape for part in get_args(kind) if (shape := _shape(part)) is not None), None)
