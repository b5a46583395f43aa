"""Match JSON keys in any case, at every depth, as Go does."""

from collections.abc import Hashable, Sized
from functools import cache
from operator import is_
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from aliquot.model.bounds import MAX_ITEMS

_T = TypeVar("_T")

_Keys = dict[str, tuple[str, "_Keys | None"]]
"""The keys of an object that we decode, in lower case, with our spelling of each and the keys of its value. A list has
the keys of its items. None for a value without keys of ours, such as labels."""


def decode_any_case(raw: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Decode JSON; the last spelling of a key wins. Not for more than LARGEST_POD bytes: it takes several times as
    long. Raises msgspec.DecodeError, RecursionError, UnicodeDecodeError."""
    value = msgspec.json.decode(raw)
    spelled = _spelled(value, _keys(cast(Hashable, kind)))
    return msgspec.json.decode(raw, type=kind) if spelled is value else msgspec.convert(spelled, kind)


def _spelled(value: Any, keys: _Keys | None) -> Any:
    """Rename keys to our spelling; return the same object if no key changes."""
    if keys is None:
        return value
    if type(value) is list:
        if len(value) > MAX_ITEMS:
            raise _too_many(value)
        items = [_spelled(item, keys) for item in value]
        return value if all(map(is_, items, value)) else items
    if type(value) is not dict:
        return value
    if len(value) > MAX_ITEMS:
        raise _too_many(value)
    differs, found = False, {}
    for key, inner in value.items():
        name, inner_keys = keys.get(key.lower(), (key, None))
        if inner_keys is None and type(inner) is dict and len(inner) > MAX_ITEMS:
            raise _too_many(inner)
        found[name] = new = inner if inner_keys is None else _spelled(inner, inner_keys)
        differs = differs or name != key or new is not inner
    return found if differs else value


def _too_many(items: Sized) -> msgspec.ValidationError:
    return msgspec.ValidationError(f"a list or object has {len(items)} items; the limit is {MAX_ITEMS}")


@cache
def _keys(kind: Hashable) -> _Keys | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
        hints = get_type_hints(kind)
        return {name.lower(): (name, _keys(hints[attribute])) for attribute, name in names}
    if get_origin(kind) is dict:
        return None
    return next((keys for part in get_args(kind) if (keys := _keys(part)) is not None), None)
