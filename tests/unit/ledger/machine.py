"""The ledger under any sequence of changes, beside a model that is too simple to be wrong.

tests/unit runs it briefly, tests/soak for as long as it is told to.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aliquot.errors import AlreadyHeld, NoRoom, NotPlaced
from aliquot.ledger import Entry, Ledger, Owner, State
from aliquot.model import CORES, Charge, Gpu, NodeGpus, Placement, Slice
from tests.factories import make_gpu

NODES = ("n1", "n2", "n3")
UIDS = tuple(f"uid-{number}" for number in range(6))
SIZES = (0, 1000, 4000, 8000, 16000)

nodes = st.sampled_from(NODES)
uids = st.sampled_from(UIDS)
cards = st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from((0, 3))), max_size=3)
"""MiB and MPS slots of each card."""
Wanted = Mapping[int, Charge]
parts: st.SearchStrategy[Wanted] = st.dictionaries(
    st.integers(0, 3),
    st.builds(
        lambda cores, mib, slots: Charge(cores, mib, slots, shares=0 if slots else 1),
        st.integers(0, CORES),
        st.integers(0, 16000),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=2,
)
deadlines = st.sampled_from((None, 5.0, 20.0))


@dataclass(frozen=True)
class Held:
    """What the model knows of an entry."""

    charges: Mapping[str, Charge]
    state: State
    until: float | None = None


def taken(entries: Mapping[str, Held]) -> dict[str, Charge]:
    """The sums, added up anew."""
    totals: dict[str, Charge] = defaultdict(Charge)
    for held in entries.values():
        for uuid, charge in held.charges.items():
            totals[uuid] += charge
    return {uuid: total for uuid, total in totals.items() if total != Charge()}


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.now = 0.0
        self.cards: dict[str, NodeGpus] = {}
        self.held: dict[str, dict[str, Held]] = {node: {} for node in NODES}

    # -- what can happen

    @rule(node=nodes, sizes=cards)
    def set_cards(self, node: str, sizes: list[tuple[int, int]]) -> None:
        gpus = (make_gpu(index, node, mib=mib, slots=slots) for index, (mib, slots) in enumerate(sizes))
        self.cards[node] = NodeGpus(node, tuple(gpus), unit_mib=1024)
        self.ledger.set_cards(self.cards[node])

    @rule(node=nodes)
    def drop_node(self, node: str) -> None:
        self.cards.pop(node, None)
        self.ledger.drop_node(node)

    @rule(uid=uids, node=nodes, wanted=parts, lasts=deadlines)
    def claim(self, uid: str, node: str, wanted: Wanted, lasts: float | None) -> None:
        placement, charges = place(node, wanted)
        before, version = self._everything(), self.ledger.version(node)
        held, until = self.held[node].get(uid), None if lasts is None else self.now + lasts
        if held is not None and held.state is State.BOUND:
            if held.charges == charges:
                assert self.ledger.claim(Owner(uid), placement, charges, until=until).charges == charges
            else:
                with pytest.raises(AlreadyHeld):
                    self.ledger.claim(Owner(uid), placement, charges, until=until)
            assert self._everything() == before, "a claim changed what is bound"
        elif self._fits(uid, node, charges):
            self.ledger.claim(Owner(uid), placement, charges, until=until)
            state = State.CLAIMED if until is None else State.RESERVED
            self.held[node][uid] = Held(charges, state, until)
            assert self.ledger.version(node) > version
            assert not self._oversold_by(node, charges), "a claim over-allocated a card"
        else:
            with pytest.raises(NoRoom):
                self.ledger.claim(Owner(uid), placement, charges, until=until)
            assert self._everything() == before, "a refused claim changed something"
            assert self.ledger.version(node) == version

    @rule(uid=uids, node=nodes, wanted=parts)
    def reassign(self, uid: str, node: str, wanted: Wanted) -> None:
        placement, charges = place(node, wanted)
        before, held = self._everything(), self.held[node].get(uid)
        if held is None or held.state is not State.BOUND:
            with pytest.raises(NotPlaced):
                self.ledger.reassign(Owner(uid), placement, charges)
        elif self._fits(uid, node, charges):
            self.ledger.reassign(Owner(uid), placement, charges)
            self.held[node][uid] = Held(charges, State.BOUND)
            assert not self._oversold_by(node, charges), "a reassignment over-allocated a card"
            return
        else:
            with pytest.raises(NoRoom):
                self.ledger.reassign(Owner(uid), placement, charges)
        assert self._everything() == before, "a refused reassignment changed something"

    @rule(seconds=st.sampled_from((1.0, 5.0, 10.0)))
    def expire(self, seconds: float) -> None:
        self.now += seconds
        late = {
            (uid, node)
            for node in NODES
            for uid, held in self.held[node].items()
            if held.until is not None and held.until <= self.now
        }
        assert {(entry.uid, entry.node) for entry in self.ledger.expire(self.now)} == late
        for uid, node in late:
            del self.held[node][uid]

    @rule(uid=uids, node=nodes, wanted=parts)
    def adopt(self, uid: str, node: str, wanted: Wanted) -> None:
        placement, charges = place(node, wanted)
        self.ledger.adopt(Owner(uid), placement, charges)
        for entries in self.held.values():
            entries.pop(uid, None)
        self.held[node][uid] = Held(charges, State.BOUND)

    @rule(uid=uids, node=nodes)
    def confirm(self, uid: str, node: str) -> None:
        self.ledger.confirm(uid, node)
        if uid in self.held[node]:
            self.held[node][uid] = Held(self.held[node][uid].charges, State.BOUND)

    @rule(uid=uids, node=nodes)
    def release_on_one_node(self, uid: str, node: str) -> None:
        changed = self.ledger.release(uid, node)
        assert changed == ([node] if self.held[node].pop(uid, None) else [])

    @rule(uid=uids)
    def release_everywhere(self, uid: str) -> None:
        expected = [node for node in NODES if self.held[node].pop(uid, None)]
        assert self.ledger.release(uid) == expected

    @precondition(lambda self: any(self.cards.values()))
    @rule(uid=st.just("uid-passing"), node=nodes, wanted=parts)
    def claim_and_release(self, uid: str, node: str, wanted: Wanted) -> None:
        """Giving back restores exactly what was."""
        placement, charges = place(node, wanted)
        before = self._everything()
        if self._fits(uid, node, charges):
            self.ledger.claim(Owner(uid), placement, charges)
            assert self.ledger.release(uid) == [node]
        assert self._everything() == before

    # -- what must always hold

    @invariant()
    def entries_are_those_of_the_model(self) -> None:
        for node in NODES:
            shown = {entry.uid: Held(entry.charges, entry.state, entry.until) for entry in self.ledger.entries(node)}
            assert shown == self.held[node]

    @invariant()
    def sums_are_those_of_the_entries(self) -> None:
        for node in NODES:
            assert self.ledger.used(node) == taken(self.held[node])

    @invariant()
    def free_is_what_is_left_and_never_negative(self) -> None:
        for node in NODES:
            used = taken(self.held[node])
            for index in range(4):
                uuid = f"GPU-{node}-{index}"
                assert self.ledger.free(node, uuid) == self._free(node, uuid, used.get(uuid, Charge()))

    @invariant()
    def pods_are_found_by_their_nodes(self) -> None:
        for uid in UIDS:
            on = {node for node in NODES if uid in self.held[node]}
            assert self.ledger.nodes_of(uid) == on
            assert {node for node in NODES if self.ledger.entry(uid, node)} == on

    @invariant()
    def claims_are_counted(self) -> None:
        held = [entry for node in NODES for entry in self.held[node].values()]
        assert self.ledger.unbound_of("") == sum(entry.state is not State.BOUND for entry in held)

    @invariant()
    def oversold_cards_are_reported(self) -> None:
        for node in NODES:
            used = taken(self.held[node])
            has = self.cards[node].gpus if node in self.cards else ()
            expected = [gpu.uuid for gpu in has if _is_oversold(gpu, used.get(gpu.uuid, Charge()))]
            assert self.ledger.oversold(node) == sorted(expected)

    @invariant()
    def a_ledger_rebuilt_from_the_entries_is_the_same(self) -> None:
        rebuilt = Ledger()
        for node in sorted(self.cards, reverse=True):
            rebuilt.set_cards(self.cards[node])
        for node in NODES:
            for entry in self.ledger.entries(node):
                if len(self.ledger.nodes_of(entry.uid)) == 1:
                    rebuilt.adopt(entry.owner, entry.placement, entry.charges)
        for node in NODES:
            alone = {uid: held for uid, held in self.held[node].items() if len(self.ledger.nodes_of(uid)) == 1}
            assert rebuilt.used(node) == taken(alone)

    # -- the model

    def _fits(self, uid: str, node: str, charges: Mapping[str, Charge]) -> bool:
        """By the letter: every card is there, and what others hold and this fit on it."""
        has = self.cards.get(node)
        others = taken({other: held for other, held in self.held[node].items() if other != uid})
        for uuid, charge in charges.items():
            if has is None or uuid not in has.by_uuid:
                return False
            used = others.get(uuid, Charge())
            free = self._free(node, uuid, used)
            if charge.mib > free.mib or charge.cores > free.cores or charge.slots > free.slots or not free.cores:
                return False
            if (charge.slots and used.shares) or (charge.shares and used.slots):
                return False
        return True

    def _oversold_by(self, node: str, charges: Mapping[str, Charge]) -> list[str]:
        """Cards of a claim that are over-sold."""
        used = taken(self.held[node])
        return [uuid for uuid in charges if _is_oversold(self.cards[node].by_uuid[uuid], used[uuid])]

    def _free(self, node: str, uuid: str, used: Charge) -> Charge:
        gpu = self.cards[node].by_uuid.get(uuid) if node in self.cards else None
        if gpu is None or _is_oversold(gpu, used):
            return Charge()
        return Charge(CORES - used.cores, gpu.mib - used.mib, gpu.slots - used.slots)

    def _everything(self) -> dict[str, tuple[list[Entry], Mapping[str, Charge]]]:
        return {node: (self.ledger.entries(node), self.ledger.used(node)) for node in NODES}


def _is_oversold(gpu: Gpu, used: Charge) -> bool:
    beyond = used.mib > gpu.mib or used.cores > CORES or used.slots > gpu.slots
    return beyond or (used.slots > 0 and used.shares > 0)


def place(node: str, wanted: Wanted) -> tuple[Placement, dict[str, Charge]]:
    charges = {f"GPU-{node}-{index}": charge for index, charge in wanted.items()}
    slices = tuple(Slice(uuid, 0, 0, charge.cores, charge.mib, charge.slots) for uuid, charge in charges.items())
    return Placement(node, "tests", {"main": slices}), charges
