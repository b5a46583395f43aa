"""What pods hold on observed nodes, where another vendor's device plugin chooses the cards.

A pod holds the cards that its record names. For each card that no record names it holds a free one of the same kind.
The engine sells there only what every card of a kind satisfies, so it does not matter which free card that is, only how
many are left. A forged record can therefore move a card, but never free one.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from aliquot.control.state.totals import Totals
from aliquot.dialects import Holding
from aliquot.ledger import Entry, Owner, State
from aliquot.model import Charge, Gpu, NodeGpus, Part, Placement, Slice
from aliquot.model.observed import choices

_WHOLE = Part(whole=True)


class ObservedNodes:
    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._pods: dict[str, dict[str, tuple[Owner, Holding]]] = {}
        """By node and UID."""
        self._node_of: dict[str, str] = {}
        """By UID. A pod may hold nothing in the ledger, on a node that is full."""
        self.unnamed: set[str] = set()
        """The UIDs of pods with cards that no record names."""

    def see(self, owner: Owner, holding: Holding) -> None:
        """Take in what a bound pod holds."""
        node = self._node_of[owner.uid] = holding.placement.node
        self._pods.setdefault(node, {})[owner.uid] = owner, holding
        self.settle(node)

    def forget(self, uid: str) -> None:
        """Forget a pod that has ended, or whose node is no longer observed. Its entry in the ledger is the caller's."""
        node = self._node_of.pop(uid, None)
        if node is None:
            return
        del self._pods[node][uid]
        self.unnamed.discard(uid)
        if not self._pods[node]:
            del self._pods[node]
        self.settle(node)

    def settle(self, node: str) -> None:
        """Choose anew for the pods of a node whose cards no record names, after claims have come or gone. Pods choose
        in the order of their UIDs, so that a server that starts anew comes to the same result."""
        if node not in self._pods:
            return
        cards, pods = self._totals.cards(node), dict(sorted(self._pods[node].items()))
        named: dict[str, str] = {}
        for uid, (_, holding) in pods.items():
            for uuid in holding.charges:
                named.setdefault(uuid, uid)
        self._move_claims(cards, named)
        others = {uuid for entry in self._others(node) for uuid in entry.charges}
        taken = set(named)
        for uid, (owner, holding) in pods.items():
            doubled = sum(named[uuid] != uid for uuid in holding.charges)
            missing = holding.unnamed + doubled
            free = [gpu for gpu in _choices(holding, cards) if gpu.uuid not in taken]
            free.sort(key=lambda gpu: (not cards.sells(gpu), gpu.uuid in others))
            assumed = {gpu.uuid: _WHOLE.on(gpu, cards.unit_mib) for gpu in free[:missing]}
            taken |= assumed.keys()
            self._enter(owner, holding.placement, {**holding.charges, **assumed})
            if missing:
                self.unnamed.add(uid)
            else:
                self.unnamed.discard(uid)

    def _enter(self, owner: Owner, placement: Placement, held: Mapping[str, Charge]) -> None:
        entry = self._totals.ledger.entry(owner.uid, placement.node)
        if not held:
            self._totals.release(owner.uid, placement.node)
        elif entry is None or (entry.state, entry.placement, entry.charges) != (State.BOUND, placement, held):
            self._totals.adopt(owner, placement, held)

    def _others(self, node: str) -> list[Entry]:
        """Claims, and what pods got from our own agent before."""
        return [entry for entry in self._totals.ledger.entries(node) if entry.uid not in self._pods[node]]

    def _move_claims(self, cards: NodeGpus, named: Collection[str]) -> None:
        """Claims make way for the cards that kubelet has given to other pods. Pods whose cards are only assumed make
        way for claims."""
        others = self._others(cards.node)
        used = {*named, *(uuid for entry in others for uuid in entry.charges)}
        for entry in others:
            if entry.placement.dialect in cards.dialects and not entry.charges.keys().isdisjoint(named):
                moved = _moved(entry, cards, named, used)
                used |= moved.charges.keys()
                self._totals.put_back(moved)


def _choices(holding: Holding, cards: NodeGpus) -> list[Gpu]:
    return choices(cards, holding.request.constraints) if holding.request else []


def _moved(entry: Entry, cards: NodeGpus, named: Collection[str], used: Collection[str]) -> Entry:
    """The claim on free cards of the same kind in place of those in `named`, as far as there are any."""
    free = [gpu for gpu in cards.gpus if gpu.uuid not in used and cards.sells(gpu)]
    new: dict[str, Gpu] = {}
    for uuid in entry.charges:
        profile = cards.by_uuid[uuid].profile if uuid in cards.by_uuid else ""
        if uuid in named and (other := next((gpu for gpu in free if gpu.profile == profile), None)):
            new[uuid] = other
            free.remove(other)
    containers = {
        name: tuple(_moved_slice(part, new) for part in parts) for name, parts in entry.placement.containers.items()
    }
    charges = {
        new[uuid].uuid if uuid in new else uuid: _WHOLE.on(new[uuid], cards.unit_mib) if uuid in new else charge
        for uuid, charge in entry.charges.items()
    }
    return replace(entry, placement=replace(entry.placement, containers=containers), charges=charges)


def _moved_slice(part: Slice, new: Mapping[str, Gpu]) -> Slice:
    gpu = new.get(part.uuid)
    return part if gpu is None else replace(part, uuid=gpu.uuid, index=gpu.index, minor=gpu.minor, mib=gpu.mib)
