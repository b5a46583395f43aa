"""Bodies made wrong: from a good one, by a few changes of its structure or of its bytes."""

from random import Random
from typing import Any

import msgspec
from msgspec import Raw

_DEEP = 3000
_LONG = 4000
"""Bytes of a list that may be made many times as long."""
_DEEPER = 0.85
_ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    3.5,
    -0.0,
    2**31,
    2**63,
    Raw(b"18446744073709551616"),
    Raw(b"-9223372036854775809"),
    Raw(b"10000000000000000000000000000000000000000"),
    "",
    " ",
    "0",
    "-1",
    "1e9",
    "1Ki",
    "99999999999999999999999999",
    "1" * 5000,
    "0.1",
    "NaN",
    "n1",
    "../n1",
    "n1/status?watch=true",
    "\x00",
    "\u202e\u0000\uffff",
    "ünïcode",
    "a" * 70_000,
    "{}",
    '{"a":1}',
    "[]",
    "2026-01-01T00:00:00Z",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": None},
    {"a": {"b": {"c": []}}},
    Raw(b"NaN"),
    Raw(b"Infinity"),
    Raw(b"-Infinity"),
    Raw(b"1e400"),
    Raw(b"-1e400"),
    Raw(b"1E-400"),
    Raw(b"01"),
    Raw(b"1."),
    Raw(b"-"),
    Raw(b'"\\ud800"'),
    Raw(b'"\\udfff\\ud800"'),
    Raw(b'"\\u0000"'),
    Raw(b'"\\x41"'),
    Raw(b'"\xff\xfe"'),
    Raw(b'"\xed\xa0\x80"'),
    Raw(b'"\xc0\x80"'),
    Raw(b"undefined"),
    Raw(b"'single'"),
    Raw(b"[" * _DEEP + b"]" * _DEEP),
    Raw(b'{"a":' * _DEEP + b"1" + b"}" * _DEEP),
    Raw(b"[" * _DEEP),
    Raw(b""),
)

_Spot = tuple[Any, Any]
"""A list or an object, and the place in it."""


def wrong(good: bytes, random: Random) -> bytes:
    """One body, out of a good one."""
    if random.random() < 0.03:
        return random.randbytes(random.choice((0, 1, 7, 300)))
    tree = msgspec.json.decode(good)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        tree = _change(tree, random)
    body = msgspec.json.encode(tree)
    return _bend(body, random) if random.random() < 0.15 else body


def _spot(tree: Any, random: Random) -> _Spot | None:
    """Some place in it, at any depth."""
    found: _Spot | None = None
    while (places := _places(tree)) and (found is None or random.random() < _DEEPER):
        found = tree, random.choice(places)
        tree = found[0][found[1]]
    return found


def _places(tree: Any) -> list[Any]:
    match tree:
        case dict():
            return list(tree)
        case list():
            return list(range(len(tree)))
    return []


def _odd(random: Random) -> Any:
    return _copy(random.choice(_ODD))


def _copy(tree: Any) -> Any:
    """Not what it is made of itself, which may be changed later."""
    match tree:
        case dict():
            return {name: _copy(value) for name, value in tree.items()}
        case list():
            return [_copy(value) for value in tree]
    return tree


def _saying_twice(tree: dict[str, Any], random: Random) -> Raw:
    """An object with one of its keys once more."""
    again = {random.choice(list(tree)): _odd(random)}
    return Raw(msgspec.json.encode(tree)[:-1] + b"," + msgspec.json.encode(again)[1:])


def _change(tree: Any, random: Random) -> Any:
    spot, other = _spot(tree, random), _spot(tree, random)
    if spot is None or other is None or random.random() < 0.01:
        return _odd(random)
    inside, place = spot
    match random.randrange(8):
        case 0 | 1 | 2:
            inside[place] = _odd(random)
        case 3:
            del inside[place]
        case 4:
            inside[place] = _copy(other[0][other[1]])
        case 5 if isinstance(inside, dict):
            inside[_another_case(place, random)] = inside.pop(place)
        case 6 if isinstance(inside[place], dict) and inside[place]:
            inside[place] = _saying_twice(inside[place], random)
        case 7 if isinstance(inside[place], list) and len(msgspec.json.encode(inside[place])) < _LONG:
            inside[place] = [_copy(value) for value in inside[place] * random.choice((2, 50))]
        case _:
            inside[place] = [inside[place]]
    return tree


def _another_case(name: str, random: Random) -> str:
    return random.choice((name.upper(), name.lower(), name.swapcase(), name.title(), name + " ", name[:-1]))


def _bend(body: bytes, random: Random) -> bytes:
    """The same bytes, or nearly."""
    at = random.randrange(len(body) + 1)
    match random.randrange(5):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + random.randbytes(random.choice((1, 4, 64))) + body[at:]
        case 2:
            return body[:at] + random.randbytes(1) + body[at + 1 :]
        case 3:
            return body + random.choice((b"{}", b"]", b"\x00", b" \n", body))
    return random.choice((b"\xef\xbb\xbf", b" " * 1000, b"\x00")) + body
