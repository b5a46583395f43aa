"""Search time per namespace, and for all namespaces together.

When the common allowance is short, the first namespace to ask would get all of it. So its last seconds are kept for
namespaces that used less than half of an even share, among those that searched recently. A common clock tracks the even
share: it advances by each namespace's part of every second. A namespace's own time advances by what it spends. A
namespace behind the clock has time left.
"""

from collections import OrderedDict
from dataclasses import dataclass

from aliquot.model.bounds import MAX_SEARCHING_NAMESPACES

_LATELY = 300.0
"""Seconds for which a namespace keeps its share after asking. Its allowance is full again by then."""
_AT_ONCE, _SHARE = 2.0, 0.1
"""Seconds that a namespace may search at once, and seconds per second after that."""
_AT_ONCE_OF_ALL, _SHARE_OF_ALL = 6.0, 0.3
_KEPT = 3.0
"""Seconds of the common allowance reserved for namespaces behind the clock: enough for two long searches at once, plus
a remainder for the next."""
_CLOCK_SHARE = _SHARE_OF_ALL / 2
"""Seconds per second that the clock hands out. A namespace that takes all it gets is ahead of it."""
_FURTHEST_BEHIND = 1.0


class Allowance:
    """Seconds to spend, refilled over time. An allowance that is not empty may be overdrawn."""

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
        """The time at which more than `kept` is left."""
        return now + max(0.0, (kept - self.left(now)) / self._share)


@dataclass
class _Account:
    allowance: Allowance
    time: float
    asked_at: float


class SearchAllowances:
    def __init__(self, now: float) -> None:
        self._all = Allowance(_AT_ONCE_OF_ALL, _SHARE_OF_ALL, now)
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._clock, self._read_at = 0.0, now

    def open_at(self, namespace: str, now: float) -> float:
        """When a namespace may search."""
        account, clock = self._accounts.get(namespace), self._read_clock(now)
        if account is None:
            return self._all.open_at(now)
        kept = 0.0 if account.time < clock else _KEPT
        return max(account.allowance.open_at(now), self._all.open_at(now, kept))

    def charge(self, namespace: str, seconds: float, now: float) -> None:
        """Charge a namespace for its search; 0 seconds if it asked without success."""
        clock = self._read_clock(now)
        account = self._accounts.pop(namespace, None) or _Account(Allowance(_AT_ONCE, _SHARE, now), clock, now)
        account.allowance.spend(seconds, now)
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
