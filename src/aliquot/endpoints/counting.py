"""Objects of a body, counted while it is read: one that has too many is given up at once, whatever its size."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from aliquot.errors import BadInput
from aliquot.model.bounds import MAX_OBJECTS


class BadCall(BadInput):
    """A body that is no call, or too large a one."""


class _Counter:
    """One is enough: bodies are read one after another, on the event loop."""

    def __init__(self) -> None:
        self.left = 0


_COUNTER = _Counter()


class Counted(msgspec.Struct):
    """Anything of which a body may have many. It is read within `counting` alone."""

    def __post_init__(self) -> None:
        _COUNTER.left -= 1
        if _COUNTER.left < 0:
            raise BadCall(f"the body has more than {MAX_OBJECTS} nodes and pods")


@contextmanager
def counting() -> Iterator[None]:
    _COUNTER.left = MAX_OBJECTS
    yield
