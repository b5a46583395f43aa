"""Values of flags as Go programs parse them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_PIECE = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SEVERITIES = {"INFO": 0, "WARNING": 1, "ERROR": 2, "FATAL": 3}


@dataclass(frozen=True)
class ValueKind:
    """A kind of value: its name in the usage, and how to read it. `read` raises ValueError with the reason."""

    word: str
    read: Callable[[str], Any]
    bare: str | None = None
    """The value of a flag without one. None if the flag needs a value."""
    absent: str = ""
    """The value of a flag that is not given and has no default."""


def _boolean(text: str) -> bool:
    if text not in _TRUE + _FALSE:
        raise ValueError("it must be true or false")
    return text in _TRUE


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("it must be a whole number")
    return int(text)


def _not_negative(text: str) -> int:
    found = _whole(text)
    if found < 0:
        raise ValueError("it must be a whole number, and not below 0")
    return found


def seconds(text: str) -> float:
    """Go's durations: 5s, 1m30s, 300ms."""
    digits = text.lstrip("+")
    if digits == "0":
        return 0.0
    if not digits or _PIECE.sub("", digits):
        raise ValueError("it must be a duration such as 5s, 1m30s or 300ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PIECE.findall(digits))


def _severity(text: str) -> int:
    if text.upper() in _SEVERITIES:
        return _SEVERITIES[text.upper()]
    found = _whole(text) if _WHOLE.fullmatch(text) else -1
    if found not in _SEVERITIES.values():
        raise ValueError("it must be INFO, WARNING, ERROR, FATAL or a number from 0 to 3")
    return found


def _modules(text: str) -> tuple[tuple[str, int], ...]:
    found = []
    for piece in filter(None, text.split(",")):
        pattern, equals, level = piece.partition("=")
        if not (pattern and equals and _WHOLE.fullmatch(level)):
            raise ValueError("it must be a list such as commit=4,lead*=2")
        found.append((pattern, int(level)))
    return tuple(found)


TEXT = ValueKind("string", str)
BOOL = ValueKind("bool", _boolean, bare="true", absent="false")
LEVEL = ValueKind("Level", _whole)
SIZE = ValueKind("uint", _not_negative)
DURATION = ValueKind("duration", seconds)
SEVERITY = ValueKind("severity", _severity)
MODULES = ValueKind("moduleSpec", _modules)
