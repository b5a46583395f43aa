"""Profiles in the format of Go's tools."""

import gzip
from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.endpoints.pprof import Frame, Profile, collapsed, encoded

WORK, RUN, MAIN = Frame("work", "work.py", 300), Frame("run", "work.py", 20), Frame("main", "main.py", 1)
PROFILE = Profile(
    (("samples", "count"), ("cpu", "nanoseconds")),
    {(WORK, RUN, MAIN): [2, 20_000_000], (RUN, MAIN): [1, 10_000_000]},
    period=10_000_000,
    began=1.5,
    seconds=3.0,
)


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """A protocol buffer, field by field."""
    left = iter(message)

    def varint() -> int:
        value = shift = 0
        while True:
            byte = next(left)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while True:
        try:
            key = varint()
        except StopIteration:
            return
        yield key >> 3, varint() if key & 7 == 0 else bytes(next(left) for _ in range(varint()))


def every(message: bytes, number: int) -> list[Any]:
    return [value for found, value in fields(message) if found == number]


@pytest.fixture
def message() -> bytes:
    return gzip.decompress(encoded(PROFILE))


def test_the_string_table_starts_with_the_empty_string_and_has_no_duplicates(message: bytes) -> None:
    texts = [text.decode() for text in every(message, 6)]
    assert texts[0] == ""
    assert sorted(texts) == sorted({"", "samples", "count", "cpu", "nanoseconds", "work", "run", "main"} | FILES)


FILES = {"work.py", "main.py"}


def test_samples_list_locations_innermost_first_with_a_value_per_measure(message: bytes) -> None:
    first, second = (dict(fields(sample)) for sample in every(message, 2))
    assert first[1] == bytes([1, 2, 3])
    assert second[1] == bytes([2, 3])
    assert next(iter(first[2])) == 2
    assert len(every(message, 4)) == len(every(message, 5)) == 3


def test_locations_refer_to_functions_by_id_and_line(message: bytes) -> None:
    texts = [text.decode() for text in every(message, 6)]
    names = {dict(fields(one))[1]: texts[dict(fields(one))[2]] for one in every(message, 5)}
    found = {}
    for place in every(message, 4):
        line = dict(fields(dict(fields(place))[4]))
        found[dict(fields(place))[1]] = (names[line[1]], line[2])
    assert found == {1: ("work", 300), 2: ("run", 20), 3: ("main", 1)}


def test_time_and_period_are_encoded(message: bytes) -> None:
    assert [every(message, number) for number in (9, 10, 12)] == [[1_500_000_000], [3_000_000_000], [10_000_000]]


def test_collapsed_lines_go_from_outermost_to_innermost_largest_first() -> None:
    assert collapsed(PROFILE) == (
        "main (main.py:1);run (work.py:20);work (work.py:300) 20000000\nmain (main.py:1);run (work.py:20) 10000000\n"
    )


def test_an_empty_profile_is_valid() -> None:
    empty = Profile((("delay", "nanoseconds"),))
    assert collapsed(empty) == ""
    assert every(gzip.decompress(encoded(empty)), 2) == []
