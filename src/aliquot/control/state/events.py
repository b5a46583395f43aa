"""Events of the cluster state: all its inputs, as values that can be logged and replayed; what they did; decisions.

The cluster state is a function of these events in order: no time, randomness or other state affects a decision.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from aliquot.control.state.opening import Opening
from aliquot.engine import CountsRecord
from aliquot.ledger import Entry
from aliquot.model import Host, Node, NodeGpus, Placement, Pod, Request

if TYPE_CHECKING:
    from aliquot.engine import Judgement


class _StateEvent(msgspec.Struct, frozen=True, tag_field="what", omit_defaults=True):
    pass


class NodeSeen(_StateEvent, frozen=True, tag="node seen"):
    node: Node


class NodeLost(_StateEvent, frozen=True, tag="node lost"):
    node: str


class PodSeen(_StateEvent, frozen=True, tag="pod seen"):
    """A pod as the API server has it."""

    pod: Pod


class HostTaken(_StateEvent, frozen=True, tag="host taken"):
    """All that matters of a bound pod that holds no cards: what it requests of its node's CPU and memory."""

    uid: str
    node: str
    host: Host


class PodForgotten(_StateEvent, frozen=True, tag="pod forgotten"):
    uid: str


class Expired(_StateEvent, frozen=True, tag="expired"):
    """Every reservation until `now` is released; without a time, all reservations."""

    now: float | None


class QuotasRead(_StateEvent, frozen=True, tag="quotas read"):
    """None: there are no quotas."""

    text: str | None


class Marked(_StateEvent, frozen=True, tag="marked unhealthy"):
    """Exactly these cards of a node, by index, count as unhealthy, whatever the node reports. Nothing new is placed on
    them. Running pods continue."""

    node: str
    indexes: list[int]


class TimePassed(_StateEvent, frozen=True, tag="time passed"):
    """By our own clock, in seconds. Time decides how old a pod and a measured load are."""

    now: float


class Loaded(_StateEvent, frozen=True, tag="loaded"):
    """How busy a node's cards are, from 0 to 1, by uuid, and the UIDs of the pods that were seen at work on them. `at`
    is when we learnt it, by our own clock. Without cards, nothing is known. It is recorded before a decision that
    depends on load, and not before others: thousands of nodes report every few seconds."""

    node: str
    at: float = 0.0
    cards: dict[str, float] = {}
    measured: frozenset[str] = frozenset()


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The chosen placement, if any, the number of nodes that fit, and the number of refused nodes by reason. `why` says
    what made the chosen node the best."""

    fits: int
    placement: Placement | None = None
    refused: Mapping[str, int] = {}
    why: str = ""


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
    """Exactly these parts are claimed for a write that is about to be sent, or reserved `until` then. The log says why
    a claim was `refused`."""

    request: Request
    placement: Placement
    until: float | None = None
    refused: str = ""


class Reassigned(_StateEvent, frozen=True, tag="reassigned"):
    """A bound pod with unnamed cards moves from its charged parts to these, which will be written to the pod."""

    request: Request
    placement: Placement


class Confirmed(_StateEvent, frozen=True, tag="confirmed"):
    """The API server accepted our write: the claim is bound, and the record on the pod is ours."""

    uid: str
    node: str


class Dropped(_StateEvent, frozen=True, tag="dropped"):
    """What a pod holds on a node is released, bound or not."""

    uid: str
    node: str


class Recounted(_StateEvent, frozen=True, tag="recounted"):
    """The counts of a node are computed anew; without a node, the quota usage of namespaces."""

    node: str = ""


StateEvent: TypeAlias = (
    NodeSeen
    | NodeLost
    | PodSeen
    | HostTaken
    | PodForgotten
    | Expired
    | QuotasRead
    | Marked
    | TimePassed
    | Loaded
    | Claimed
    | Reassigned
    | Confirmed
    | Dropped
    | Recounted
)


@dataclass(frozen=True, slots=True)
class Effects:
    """What an event did: whether it `changed` the cluster state, where it may have `freed` room, and the UIDs of pods
    whose reservations `expired`. `record` is a smaller event with the same effects, if there is one."""

    changed: bool = False
    freed: tuple[Opening, ...] = ()
    expired: tuple[str, ...] = ()
    record: StateEvent | None = None


NO_EFFECTS = Effects()


@dataclass(frozen=True)
class Snapshot:
    """Everything that the cluster state knows at a point in time; later events can be replayed on top of it."""

    cards: Sequence[NodeGpus]
    entries: Sequence[Entry]
    provisional: frozenset[str]
    quotas: str | None
    marks: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Cards marked unhealthy; `cards` does not include the marks."""
    offered: Mapping[str, Host] = field(default_factory=dict)
    """CPU and memory of each node."""
    bound: Mapping[str, Mapping[str, Host]] = field(default_factory=dict)
    """What each bound pod requests of them, by node and UID."""
    shapes: CountsRecord = field(default_factory=CountsRecord)
    counted: frozenset[str] = frozenset()
    """UIDs of the pods that were counted by shape."""
    now: float = 0.0
    loads: Sequence[Loaded] = ()


class Recorder(Protocol):
    def record(self, event: StateEvent | Decided) -> None:
        """Called after a change of the cluster state, never during it. May read the cluster state, e.g. for a snapshot.
        Must not change it or request a decision."""


def search_of(judgement: "Judgement") -> Searched | None:
    effort = judgement.effort
    return Searched(effort.steps, judgement.searched) if effort.spent or effort.ran_out else None


def verdict_of(judgement: "Judgement") -> Verdict:
    node = judgement.best()
    refused = Counter(reason.value for reason in judgement.refusals(judgement.fleet.nodes).values())
    placement = judgement.placement(node) if node is not None else None
    return Verdict(int(judgement.fits.sum()), placement, dict(sorted(refused.items())), judgement.why())
