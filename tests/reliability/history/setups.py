"""What a history is made of, as data: machines, pods, servers' times, and how often each trouble comes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.reliability.history.machines import Card, Machine

_T4, _A10 = 15360, 23028

TIMES = {
    "LEASE_DURATION": "5",
    "LEASE_RENEW": "4",
    "LEASE_RETRY": "0.8",
    "COMMIT_BUDGET": "1.5",
    "COMMIT_LOOK": "1",
    "COMMIT_ACT_LIMIT": "12",
    "LATE_SECONDS": "8",
    "LATE_HOLD": "5",
    "AUDIT_SECONDS": "10",
}
_AT_LATEST = 0.65
"""Of COMMIT_ACT_LIMIT: so late at most does the API server act on a request."""


@dataclass(frozen=True)
class Group:
    """Machines of one kind: `mib` of each card, by index."""

    count: int
    mib: tuple[int, ...]
    dialects: tuple[str, ...]
    agent: str = "ours"
    slots: int = 0


@dataclass(frozen=True)
class Setup:
    groups: tuple[Group, ...]
    pods: Mapping[str, int]
    """How often each dialect is asked for."""
    ways: Mapping[str, int]
    """How often each way to a node is taken."""
    troubles: Mapping[str, int]
    """How often each trouble comes."""
    waiting: int = 16
    """So many pods wait at most."""
    callers: int = 12
    observers: int = 0
    """Servers that only read, beside the two that lead in turn."""
    trouble_each: float = 2.5
    """Seconds between two troubles, on average."""
    outage: tuple[float, float] = (0.3, 5.0)
    chaos: float = 60.0
    """Seconds of trouble between two looks at a cluster at rest."""
    times: Mapping[str, str] = field(default_factory=lambda: TIMES)

    @property
    def lease(self) -> float:
        return float(self.times["LEASE_DURATION"])

    @property
    def acts_within(self) -> float:
        """Seconds within which the API server acts on a request, or never."""
        return _AT_LATEST * float(self.times["COMMIT_ACT_LIMIT"])

    def machines(self) -> dict[str, Machine]:
        made: dict[str, Machine] = {}
        for group in self.groups:
            for _ in range(group.count):
                name = f"{group.agent[:2]}{len(made):02}"
                cards = [
                    Card(f"GPU-{name}-{index}", _minor(group, index), mib, group.slots)
                    for index, mib in enumerate(group.mib)
                ]
                made[name] = Machine(name, cards, group.dialects, group.agent, is_shown=group.agent == "ours")
        return made


def _minor(group: Group, index: int) -> int:
    """On our machines never the index, so that whoever mixes them up is seen; the originals do mix them up."""
    return len(group.mib) - 1 - index if group.agent == "ours" else index


_EVERY_POD = {"gpushare": 4, "tencent": 3, "elastic": 2, "nvidia": 3, "hami": 2, "aliquot": 4, "keti": 2}
_EVERY_WAY = {"endpoint": 16, "native": 10, "volcano": 6, "hand": 1}
_EVERY_TROUBLE = {
    "kill": 6,
    "stop": 4,
    "term": 2,
    "suspend": 2,
    "jump": 2,
    "outage": 1,
    "hang": 1,
    "partition": 2,
    "bad lists": 3,
    "weather": 4,
    "late writes": 4,
    "drop watches": 2,
    "hide inventory": 4,
    "show inventory": 6,
    "lose card": 2,
    "find card": 4,
    "renumber": 2,
    "cordon": 1,
    "uncordon": 2,
    "delete node": 1,
    "make node": 3,
}

SETUPS = {
    "brief": Setup(
        groups=(
            Group(1, (_T4, _T4), ("gpushare", "nvidia", "aliquot")),
            Group(1, (_T4,), ("tencent", "elastic", "aliquot")),
            Group(1, (_T4,), ("gpushare",), agent="gpushare"),
        ),
        pods=_EVERY_POD,
        ways=_EVERY_WAY,
        troubles={"kill": 2, "jump": 1, "weather": 3, "late writes": 2, "hide inventory": 2, "show inventory": 3},
        trouble_each=1.0,
        outage=(0.2, 0.5),
        times=TIMES | {"LEASE_DURATION": "2", "LEASE_RENEW": "1.5", "LEASE_RETRY": "0.4", "COMMIT_ACT_LIMIT": "6"},
    ),
    "mixed": Setup(
        groups=(
            Group(3, (_T4, _T4, _T4), ("gpushare", "nvidia", "aliquot")),
            Group(2, (_A10, _A10, _A10), ("tencent", "elastic", "aliquot")),
            Group(1, (_T4, _A10), ("hami", "aliquot", "gpushare")),
            Group(1, (_T4, _T4), ("keti", "gpushare", "aliquot"), slots=4),
            Group(1, (_T4, _T4), ("gpushare",), agent="gpushare"),
            Group(1, (_T4, _T4), ("tencent",), agent="tencent"),
        ),
        pods=_EVERY_POD,
        ways=_EVERY_WAY,
        troubles=_EVERY_TROUBLE,
    ),
    "late": Setup(
        groups=(
            Group(6, (_T4,), ("gpushare", "nvidia", "aliquot", "tencent")),
            Group(4, (_T4, _T4, _T4), ("tencent", "nvidia", "aliquot", "elastic")),
            Group(2, (_T4,), ("gpushare",), agent="gpushare"),
            Group(2, (_T4,), ("tencent",), agent="tencent"),
            Group(1, (_T4, _T4), ("nvidia",), agent="nvidia"),
        ),
        pods={"nvidia": 5, "tencent": 5, "gpushare": 3, "aliquot": 3, "elastic": 1},
        ways={"endpoint": 12, "native": 6, "volcano": 10, "hand": 3},
        troubles=_EVERY_TROUBLE | {"hide inventory": 10, "show inventory": 12, "lose card": 5, "find card": 8},
        outage=(1.0, 12.0),
        observers=1,
    ),
}
