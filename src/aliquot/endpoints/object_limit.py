"""Limit the objects in a body: decoding stops at the first object too many, whatever the body's size."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from aliquot.errors import BadInput
from aliquot.model.bounds import MAX_OBJECTS


class BadCall(BadInput):
    """A body that is not a valid call, or is too large."""


class _Counter:
    """A single counter suffices: the event loop decodes bodies one after another."""

    def __init__(self) -> None:
        self.left = 0


_COUNTER = _Counter()


class Counted(msgspec.Struct):
    """An object that a body may repeat. Decode it only within `object_limit`."""

    def __post_init__(self) -> None:
        _COUNTER.left -= 1
        if _COUNTER.left < 0:
            raise BadCall(f"the body has more than {MAX_OBJECTS} nodes and pods")


@contextmanager
def object_limit() -> Iterator[None]:
    _COUNTER.left = MAX_OBJECTS
    yield
