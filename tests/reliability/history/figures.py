"""What a run counted."""

from collections import Counter
from dataclasses import dataclass, field

OVERSOLD, LOST, NOT_LEADING, MOVED = "over-sold", "lost", "leaders that do not lead", "moved or misplaced"
ENDED, WROTE = "servers that ended by themselves", "writes of observers"
_ALL = (OVERSOLD, LOST, NOT_LEADING, MOVED, ENDED, WROTE)


@dataclass(frozen=True)
class Violation:
    what: str
    """One of the words above."""
    text: str
    at: float
    """Seconds since the run began."""
    story: list[str]

    def __str__(self) -> str:
        return "\n".join([f"{self.what.upper()} after {self.at / 60:.1f} min: {self.text}", *self.story])


@dataclass
class Figures:
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    binds: Counter[str] = field(default_factory=Counter)
    """Accepted, by endpoint."""
    violations: list[Violation] = field(default_factory=list)

    def __str__(self) -> str:
        found = Counter(violation.what for violation in self.violations)
        lines = [f"{self.seconds / 60:.1f} minutes"]
        lines += [f"{name}: {count}" for name, count in sorted(self.counts.items())]
        lines += [f"binds through {endpoint}: {count}" for endpoint, count in sorted(self.binds.items())]
        lines += [f"{what}: {found[what]}" for what in _ALL]
        return "\n".join(lines)
