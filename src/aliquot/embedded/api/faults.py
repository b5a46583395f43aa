"""What can be made to go wrong at the embedded API server, as values. `injection` makes it happen."""

from typing import Annotated, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0)]

Reaction = Literal["refuse", "hang"]
"""How an outage looks: connections are refused, or accepted and not answered."""

_READS = ("get", "list", "watch")
_READING, _WRITING = "reads", "writes"
_ALL = "*"


class Outage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    how: Reaction = "refuse"
    seconds: Seconds | None = None
    """None lasts until somebody ends it."""


class Asked(msgspec.Struct, frozen=True):
    """A request as faults see it."""

    verb: str
    resource: str
    """`pods`, or with a subresource `pods/binding`."""

    @property
    def writes(self) -> bool:
        return self.verb not in _READS


class Faults(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Shares are of the requests that `only` chooses; one request suffers one fault at most."""

    latency: tuple[Seconds, Seconds] = (0.0, 0.0)
    """Every request waits so many seconds, between the two."""
    conflicts: Share = 0.0
    """409 in place of a write."""
    busy: Share = 0.0
    """429 with Retry-After."""
    errors: Share = 0.0
    """500; nothing was done."""
    lost_requests: Share = 0.0
    """The connection is closed, and nothing was done."""
    lost_answers: Share = 0.0
    """A write is made, and the connection closed in place of an answer."""
    drop_watches_each: Seconds = 0.0
    """Every so many seconds, every open watch is cut; 0 cuts none."""
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

    def concern(self, asked: Asked) -> bool:
        return self.only is None or any(_chooses(choice, asked) for choice in self.only)

    def drawn(self, asked: Asked, number: float) -> str:
        """The fault that a number in [0, 1) gives to a request, "" for none."""
        for fault, share in self._shares().items():
            if number < share:
                return fault if asked.writes or fault not in ("conflicts", "lostAnswers") else ""
            number -= share
        return ""


def _chooses(choice: str, asked: Asked) -> bool:
    verb, resource = [_ALL, *choice.split()][-2:]
    matching = {_ALL, asked.verb, _WRITING if asked.writes else _READING}
    return verb in matching and resource in (_ALL, asked.resource)
