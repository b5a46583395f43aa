"""What happened, newest last, bounded; and the part of it that explains a violation."""

import time
from collections import deque
from dataclasses import dataclass

_KEPT = 20_000
_SHOWN = 60


@dataclass(frozen=True)
class Line:
    at: float
    text: str
    about: frozenset[str]
    """Names of nodes and pods; what is about none is about all."""

    def __str__(self) -> str:
        return f"{self.at:9.3f}  {self.text}"


class Story:
    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lines: deque[Line] = deque(maxlen=_KEPT)

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def tell(self, text: str, *about: str) -> None:
        self._lines.append(Line(self.now, text, frozenset(filter(None, about))))

    def excerpt(self, *about: str) -> list[str]:
        """The last lines about any of these, and what happened to everybody meanwhile."""
        names = set(about)
        mine = [line for line in self._lines if line.about & names][-_SHOWN:]
        since = mine[0].at if mine else self.now - 60.0
        others = [line for line in self._lines if not line.about and line.at >= since][-_SHOWN:]
        return [str(line) for line in sorted((*mine, *others), key=lambda line: line.at)]
