"""Profiles in the format of Go's tools (gzipped profile.proto), and as flame graph lines."""

import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_LENGTH = 2
_NUMBER = 0


class Frame(NamedTuple):
    function: str
    file: str = ""
    line: int = 0


Stack = tuple[Frame, ...]
"""The innermost frame first."""


@dataclass(frozen=True)
class Profile:
    """Samples by stack, with a value for every measure; tools show the last measure by default."""

    measures: Sequence[tuple[str, str]]
    """Names and units, such as `cpu` in `nanoseconds`."""
    samples: Mapping[Stack, Sequence[int]] = field(default_factory=dict)
    period: int = 1
    """Units of the last measure between two samples."""
    began: float = 0.0
    seconds: float = 0.0


def collapsed(profile: Profile) -> str:
    """Format a line per stack, outermost frame first, with its last measure: `main;run;work 42`."""
    lines = (
        f"{';'.join(f'{frame.function} ({_place(frame)})' for frame in reversed(stack)) or '(no frames)'} {values[-1]}"
        for stack, values in sorted(profile.samples.items(), key=lambda sample: (-sample[1][-1], sample[0]))
    )
    return "".join(f"{line}\n" for line in lines)


def _place(frame: Frame) -> str:
    return f"{frame.file}:{frame.line}" if frame.file else "-"


def encoded(profile: Profile) -> bytes:
    """Encode a profile for `go tool pprof`."""
    texts = _Numbered([""])
    functions: dict[tuple[str, str], int] = {}
    places: dict[Frame, int] = {}
    parts = [_message(1, _value_type(texts, *measure)) for measure in profile.measures]
    for stack, values in profile.samples.items():
        ids = [places.setdefault(frame, len(places) + 1) for frame in stack]
        parts.append(_message(2, _packed(1, ids) + _packed(2, values)))
    for frame, number in places.items():
        function = functions.setdefault((frame.function, frame.file), len(functions) + 1)
        line = _number(1, function) + _number(2, frame.line)
        parts.append(_message(4, _number(1, number) + _message(4, line)))
    for (name, file), number in functions.items():
        shown = texts.number(name)
        named = _number(1, number) + _number(2, shown) + _number(3, shown) + _number(4, texts.number(file))
        parts.append(_message(5, named))
    kind = _message(11, _value_type(texts, *profile.measures[-1]))
    parts += [_message(6, text.encode()) for text in texts]
    parts.append(_number(9, int(profile.began * 1e9)) + _number(10, int(profile.seconds * 1e9)))
    parts.append(kind + _number(12, profile.period))
    return gzip.compress(b"".join(parts), mtime=0)


class _Numbered(list[str]):
    """The profile's string table; messages refer to a string by its index."""

    def __init__(self, texts: Iterable[str]) -> None:
        super().__init__(texts)
        self._places = {text: place for place, text in enumerate(self)}

    def number(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self)
            self.append(text)
        return self._places[text]


def _value_type(texts: _Numbered, name: str, unit: str) -> bytes:
    return _number(1, texts.number(name)) + _number(2, texts.number(unit))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _number(field_number: int, value: int) -> bytes:
    return _varint(field_number << 3 | _NUMBER) + _varint(value)


def _message(field_number: int, body: bytes) -> bytes:
    return _varint(field_number << 3 | _LENGTH) + _varint(len(body)) + body


def _packed(field_number: int, values: Sequence[int]) -> bytes:
    return _message(field_number, b"".join(map(_varint, values)))
