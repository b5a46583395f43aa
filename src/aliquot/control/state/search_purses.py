"""What namespaces may spend of the time for searches, each by itself and all together.

Once the common purse is short, whoever asks first after it has filled up would get all of it. So the last seconds in it
are kept for namespaces that have used less than half of an even share, among those that searched lately. An even share
is counted as a clock that all of them follow: it gains their part of every second, a namespace's own time gains what
it spends, and who is behind the clock has something coming.
"""

from collections import OrderedDict
from dataclasses import dataclass

from aliquot.model.bounds import MAX_SEARCHING_NAMESPACES

_LATELY = 300.0
"""Seconds for which a namespace that asked has its share. Its purse is full again by then."""
_AT_ONCE, _SHARE = 2.0, 0.1
"""Seconds that a namespace may search, and seconds a second that it may from then on."""
_AT_ONCE_OF_ALL, _SHARE_OF_ALL = 6.0, 0.3
_KEPT = 3.0
"""Seconds of the common purse that are kept for namespaces behind the clock: two can take a long search at once, and
there is something left for the next."""
_CLOCK_SHARE = _SHARE_OF_ALL / 2
"""Seconds a second that the clock deals out. Of namespaces that take all they get, each is ahead of it."""
_FURTHEST_BEHIND = 1.0


class Purse:
    """Seconds that may be spent, and come back by and by. Whoever has any left may spend more than that."""

    def __init__(self, at_once: float, share: float, now: float) -> None:
        self._at_once, self._share = at_once, share
        self._left, self._counted_at = at_once, now

    def left(self, now: float) -> float:
        self._left = min(self._at_once, self._left + (now - self._counted_at) * self._share)
        self._counted_at = now
        return self._left

    def spend(self, seconds: float, now: float) -> None:
        self._left = self.left(now) - seconds

    def open_at(self, now: float, kept: float = 0.0) -> float:
        """When there is something left again beside what is kept."""
        return now + max(0.0, (kept - self.left(now)) / self._share)


@dataclass
class _Account:
    purse: Purse
    time: float
    asked_at: float


class Purses:
    def __init__(self, now: float) -> None:
        self._all = Purse(_AT_ONCE_OF_ALL, _SHARE_OF_ALL, now)
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._clock, self._read_at = 0.0, now

    def open_at(self, namespace: str, now: float) -> float:
        """When a namespace may search."""
        account, clock = self._accounts.get(namespace), self._read_clock(now)
        if account is None:
            return self._all.open_at(now)
        kept = 0.0 if account.time < clock else _KEPT
        return max(account.purse.open_at(now), self._all.open_at(now, kept))

    def charge(self, namespace: str, seconds: float, now: float) -> None:
        """A namespace has searched for so long; for no time at all if it asked in vain."""
        clock = self._read_clock(now)
        account = self._accounts.pop(namespace, None) or _Account(Purse(_AT_ONCE, _SHARE, now), clock, now)
        account.purse.spend(seconds, now)
        self._all.spend(seconds, now)
        account.time = max(account.time, clock - _FURTHEST_BEHIND) + seconds
        account.asked_at = now
        self._accounts[namespace] = account
        self._forget(now)

    def _read_clock(self, now: float) -> float:
        self._clock += (now - self._read_at) * _CLOCK_SHARE / max(1, len(self._accounts))
        self._read_at = now
        return self._clock

    def _forget(self, now: float) -> None:
        while len(self._accounts) > MAX_SEARCHING_NAMESPACES or self._oldest().asked_at < now - _LATELY:
            self._accounts.popitem(last=False)

    def _oldest(self) -> _Account:
        return next(iter(self._accounts.values()))
