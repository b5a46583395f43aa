"""Openings: places where room may have become available. They are numbered, so that each pod knows which are new to
it."""

from collections import deque
from collections.abc import Collection

from aliquot.clock import Clock
from aliquot.control.state.opening import Opening


class Openings:
    """An opening counts when it is ripe: at once, or `grace` seconds later if kube-scheduler sees its event and may
    retry."""

    def __init__(self, clock: Clock, grace: float) -> None:
        self._clock = clock
        self._grace = grace
        self._unripe: deque[tuple[float, int, Opening]] = deque()
        self._nodes: dict[str, int] = {}
        self._namespaces: dict[str, int] = {}
        self._anywhere = 0
        self.latest = 0
        """The latest number, ripe or not."""
        self.ripe = 0
        """The highest ripe number."""

    def add(self, opening: Opening) -> None:
        self.latest += 1
        if opening.heard:
            self._unripe.append((self._clock.monotonic() + self._grace, self.latest, opening))
        else:
            self._count(self.latest, opening)

    def ripen(self) -> None:
        now = self._clock.monotonic()
        while self._unripe and self._unripe[0][0] <= now:
            _, number, opening = self._unripe.popleft()
            self._count(number, opening)

    def next_at(self) -> float | None:
        """When the next opening is ripe; None without any."""
        return self._unripe[0][0] if self._unripe else None

    def since(self, number: int, namespace: str) -> Collection[str] | None:
        """The nodes with a ripe opening after this number for a pod of this namespace; None for all nodes."""
        if max(self._anywhere, self._namespaces.get(namespace, 0)) > number:
            return None
        return [node for node, last in self._nodes.items() if last > number]

    def forget_until(self, number: int) -> None:
        """Drop openings up to this number: every pod knows them."""
        self._nodes = {node: last for node, last in self._nodes.items() if last > number}
        self._namespaces = {name: last for name, last in self._namespaces.items() if last > number}

    def _count(self, number: int, opening: Opening) -> None:
        self.ripe = max(self.ripe, number)
        if opening.node:
            self._nodes[opening.node] = max(number, self._nodes.get(opening.node, 0))
        if opening.namespace:
            self._namespaces[opening.namespace] = max(number, self._namespaces.get(opening.namespace, 0))
        if not opening.node and not opening.namespace:
            self._anywhere = max(number, self._anywhere)
