"""Faults of the embedded API server for tests, as values. `injection` makes them happen."""

from dataclasses import dataclass
from typing import Literal

Reaction = Literal["refuse", "hang"]
"""How an outage looks: connections are refused, or accepted and not answered."""

_READS = ("get", "list", "watch")
_READING, _WRITING = "reads", "writes"
_ALL = "*"


@dataclass(frozen=True)
class FaultTarget:
    """A request as faults see it."""

    verb: str
    resource: str
    """`pods`, or with a subresource `pods/binding`."""

    @property
    def writes(self) -> bool:
        return self.verb not in _READS


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Shares of the requests that `only` selects. A request suffers at most one fault."""

    latency: tuple[float, float] = (0.0, 0.0)
    """Every request waits between these two numbers of seconds."""
    conflicts: float = 0.0
    """409 instead of a write."""
    busy: float = 0.0
    """429 with Retry-After."""
    errors: float = 0.0
    """500; nothing was done."""
    lost_requests: float = 0.0
    """The connection is closed, and nothing was done."""
    lost_answers: float = 0.0
    """The write is made, but the connection is closed without an answer."""
    drop_watches_each: float = 0.0
    """Cut every open watch every so many seconds; 0 cuts none."""
    only: frozenset[str] | None = None
    """Resources (`pods`, `pods/binding`), or verbs and resources (`create pods`, `reads *`, `writes leases`)."""
    seed: int = 0
    """The same seed and the same requests suffer the same faults."""

    def __post_init__(self) -> None:
        if self.latency[0] > self.latency[1]:
            raise ValueError("latency: the first number is the smaller one")
        if sum(self._shares().values()) > 1.0:
            raise ValueError(f"{', '.join(self._shares())}: the shares add up to more than 1")
        for choice in self.only or ():
            if not 1 <= len(choice.split()) <= 2:
                raise ValueError(f"only: {choice!r} is not a resource, nor a verb and a resource")

    def _shares(self) -> dict[str, float]:
        return {
            "conflicts": self.conflicts,
            "busy": self.busy,
            "errors": self.errors,
            "lostRequests": self.lost_requests,
            "lostAnswers": self.lost_answers,
        }

    def concern(self, asked: FaultTarget) -> bool:
        return self.only is None or any(_chooses(choice, asked) for choice in self.only)

    def drawn(self, asked: FaultTarget, number: float) -> str:
        """The fault of a request for a random number in [0, 1); "" for none."""
        for fault, share in self._shares().items():
            if number < share:
                return fault if asked.writes or fault not in ("conflicts", "lostAnswers") else ""
            number -= share
        return ""


def _chooses(choice: str, asked: FaultTarget) -> bool:
    verb, resource = [_ALL, *choice.split()][-2:]
    matching = {_ALL, asked.verb, _WRITING if asked.writes else _READING}
    return verb in matching and resource in (_ALL, asked.resource)
