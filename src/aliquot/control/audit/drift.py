"""Differences between the cluster state and the cluster for a single pod, told apart from legitimate states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aliquot.dialects import Dialects, Holding, holding_of
from aliquot.errors import AliquotError
from aliquot.ledger import Entry, State
from aliquot.model import Charge, Host, NodeGpus, Pod
from aliquot.model.records import PLACEMENT

FORGED = "forged"
"""A user rewrote the record on a bound pod. The pod keeps what it held before."""


@dataclass(frozen=True)
class Drift:
    kind: str
    pod: str = ""
    node: str = ""
    was: str = ""
    now: str = ""

    def words(self) -> Mapping[str, str]:
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class Sight:
    """A bound pod, its entry in the cluster state on its node, and the cards used to read it."""

    pod: Pod
    entry: Entry | None
    cards: NodeGpus
    first_record: str | None = None
    """Our record on the pod as first seen."""
    is_unplaced: bool = False
    """No trusted record names its cards: the cluster state holds what the pod is expected to get."""
    host: Host | None = None
    """What the cluster state counts of the pod's CPU and memory."""

    def is_same(self, other: "Sight") -> bool:
        """Whether nothing relevant has changed."""
        return self.entry is other.entry and self.cards is other.cards and _reads_alike(self.pod, other.pod)


def drift_of(now: Sight, then: Sight | None, dialects: Dialects, is_alive: Callable[[Entry], bool]) -> Drift | None:
    """What is wrong with the cluster state, if anything; `then` is the previous sight.

    The first sight of a pod settles what it holds, so a difference alone is no fault of the cluster state: if the pod
    changed, its record was rewritten. `is_alive` says whether a transaction works on a claim.
    """
    pod, entry, cards = now.pod, now.entry, now.cards
    if not cards.gpus:
        return None  # without cards nothing can be read
    holding = _read(pod, cards, dialects)
    if entry is None:
        is_lost = holding is not None and (holding.charges or holding.unnamed)
        return _drift("lost", now, holding) if is_lost else None
    if entry.state is not State.BOUND:
        is_older = not pod.started and PLACEMENT not in pod.metadata.annotations  # an original's earlier record
        if (holding is None or is_older) and is_alive(entry):
            return None
        return _drift("claim" if holding is None else "lost", now, holding)
    is_expected = now.is_unplaced and bool(entry.charges)
    if is_expected or not entry.charges.keys() <= cards.by_uuid.keys() or _agree(entry, holding):
        return None
    if then is None or then.entry is None:
        is_rewritten = now.first_record is not None and pod.metadata.annotations.get(PLACEMENT) != now.first_record
        is_theirs = is_rewritten or _covers(entry.charges, holding.charges if holding else {})
        return _drift(FORGED if is_theirs else "charge", now, holding)
    if then.entry != entry:
        return _drift("charge", now, holding)
    was_rewritten = then.cards == cards and _written(then.pod) != _written(pod)
    return _drift(FORGED, now, holding) if was_rewritten else None


def said(charges: Mapping[str, Charge]) -> str:
    """Format charges for people."""
    return ", ".join(f"{uuid} {_amounts(charge)}" for uuid, charge in sorted(charges.items())) or "nothing"


def said_of(host: Host | None) -> str:
    """Format CPU and memory for people."""
    return f"{host.cpu}m CPU, {host.memory} MiB of memory" if host else "nothing"


def _amounts(charge: Charge) -> str:
    units = ((charge.cores, "%"), (charge.mib, "MiB"), (charge.slots, "slots"))
    return " ".join(f"{amount} {unit}" for amount, unit in units if amount)


def _reads_alike(pod: Pod, other: Pod) -> bool:
    if pod is other:
        return True
    return _written(pod) == _written(other) and pod.spec == other.spec and pod.started == other.started


def _written(pod: Pod) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What users can rewrite on a bound pod."""
    return pod.metadata.annotations, pod.metadata.labels


def _read(pod: Pod, cards: NodeGpus, dialects: Dialects) -> Holding | None:
    try:
        return holding_of(pod, cards, dialects)
    except AliquotError:
        return None


def _agree(entry: Entry, holding: Holding | None) -> bool:
    if holding is not None and holding.unnamed:
        return bool(entry.charges)  # nobody knows the cards
    return holding is not None and entry.charges == holding.charges


def _covers(large: Mapping[str, Charge], small: Mapping[str, Charge]) -> bool:
    def covered(charge: Charge, by: Charge) -> bool:
        rest = by - charge
        return min(rest.cores, rest.mib, rest.slots) >= 0

    return all(covered(charge, large.get(uuid, Charge())) for uuid, charge in small.items())


def _drift(kind: str, sight: Sight, holding: Holding | None) -> Drift:
    was = said(sight.entry.charges) if sight.entry is not None else "nothing"
    now = said(holding.charges) if holding is not None else "nothing"
    return Drift(kind, sight.pod.key, sight.pod.spec.node_name, was, now)
