"""Events of the cluster state: all its inputs and decisions, as values that can be logged and replayed.

The cluster state is a function of these events in order: no time, randomness or other state affects a decision.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import msgspec

from aliquot.engine import Judgement
from aliquot.ledger import Entry
from aliquot.model import Node, NodeGpus, Placement, Pod, Request


class _StateEvent(msgspec.Struct, frozen=True, tag_field="what", omit_defaults=True):
    pass


class NodeSeen(_StateEvent, frozen=True, tag="node seen"):
    node: Node


class NodeLost(_StateEvent, frozen=True, tag="node lost"):
    node: str


class PodSeen(_StateEvent, frozen=True, tag="pod seen"):
    pod: Pod


class PodForgotten(_StateEvent, frozen=True, tag="pod forgotten"):
    uid: str


class Expired(_StateEvent, frozen=True, tag="expired"):
    now: float | None
    """None: all reservations."""


class QuotasRead(_StateEvent, frozen=True, tag="quotas read"):
    text: str | None


class Marked(_StateEvent, frozen=True, tag="marked unhealthy"):
    """Cards of a node marked unhealthy, by index."""

    node: str
    indexes: list[int]


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The chosen placement, if any, the number of nodes that fit, and the number of refused nodes by reason."""

    fits: int
    placement: Placement | None = None
    refused: Mapping[str, int] = {}


class Searched(msgspec.Struct, frozen=True):
    """The steps and nodes of a search."""

    steps: int
    nodes: list[str]


class Decided(_StateEvent, frozen=True, tag="decided"):
    request: Request
    gpu_policy: str
    node_policy: str
    verdict: Verdict
    search: Searched | None = None
    """None if nothing had to be searched."""


class Claimed(_StateEvent, frozen=True, tag="claimed"):
    """`until` is None for a claim that does not expire; `refused` says why it was not made."""

    request: Request
    placement: Placement
    until: float | None = None
    refused: str = ""


class Reassigned(_StateEvent, frozen=True, tag="reassigned"):
    """A bound pod with unnamed cards got these."""

    request: Request
    placement: Placement


class Confirmed(_StateEvent, frozen=True, tag="confirmed"):
    uid: str
    node: str


class Dropped(_StateEvent, frozen=True, tag="dropped"):
    uid: str
    node: str


class Recounted(_StateEvent, frozen=True, tag="recounted"):
    """Without a node: the quota usage of namespaces."""

    node: str = ""


StateEvent: TypeAlias = (
    NodeSeen
    | NodeLost
    | PodSeen
    | PodForgotten
    | Expired
    | QuotasRead
    | Marked
    | Decided
    | Claimed
    | Reassigned
    | Confirmed
    | Dropped
    | Recounted
)


@dataclass(frozen=True)
class Snapshot:
    """Everything that the cluster state knows at a point in time; later events can be replayed on top of it."""

    cards: Sequence[NodeGpus]
    entries: Sequence[Entry]
    provisional: frozenset[str]
    quotas: str | None
    marks: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Cards marked unhealthy; `cards` does not include the marks."""


class Recorder(Protocol):
    def record(self, event: StateEvent) -> None:
        """Called after a change of the cluster state, never during it. May read the cluster state, e.g. for a snapshot.
        Must not change it or request a decision."""


def search_of(judgement: Judgement) -> Searched | None:
    effort = judgement.effort
    return Searched(effort.steps, judgement.searched) if effort.spent or effort.ran_out else None


def verdict_of(judgement: Judgement) -> Verdict:
    node = judgement.best()
    refused = Counter(reason.value for reason in judgement.refusals(judgement.fleet.nodes).values())
    placement = judgement.placement(node) if node is not None else None
    return Verdict(int(judgement.fits.sum()), placement, dict(sorted(refused.items())))
