"""Places for calls that read. They share a port's places with schedulers, so they may not take all."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.endpoints.asgi import ANYONE, Call
from aliquot.errors import Refused


class Places:
    """`most` places for all callers, of which one caller may take `of_caller`."""

    def __init__(self, most: int, of_caller: int) -> None:
        self._most = most
        self._of_caller = of_caller
        self._taken = Counter[str]()
        """By caller."""

    @contextmanager
    def place_for(self, call: Call) -> Iterator[None]:
        """A place among the calls that wait for their answer. Raises Refused."""
        who = call.address if call.caller is ANYONE else call.caller.name
        if self._taken.total() >= self._most or self._taken[who] >= self._of_caller:
            raise Refused("too many reads are in progress; try again")
        self._taken[who] += 1
        try:
            yield
        finally:
            self._taken[who] -= 1
            if not self._taken[who]:
                del self._taken[who]
