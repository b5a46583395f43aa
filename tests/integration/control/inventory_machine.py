"""One node whose inventory comes, goes, shrinks and is numbered anew, under any claims, Bindings and restarts.

The checker knows the hardware: which physical card every pod has, whatever anybody calls it. It shares no code with the
cluster. tests/integration runs it briefly, tests/soak for as long as it is told to.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed, Confirmed, NodeLost, NodeSeen, PodForgotten, PodSeen
from aliquot.errors import NoRoom
from aliquot.model import NodeGpus, Pod
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import GPU_COUNT, GPU_MEM, make_gpu, make_node, make_pod, make_uid

PHYSICAL = ("GPU-a", "GPU-b", "GPU-c")
UNITS = 15
UNIT_MIB = 1024
CAPACITY = {GPU_MEM: str(UNITS * len(PHYSICAL)), GPU_COUNT: str(len(PHYSICAL))}


@dataclass
class Hardware:
    """The cards by their index, and those that the agent tells of; None: no agent tells anything."""

    order: list[str] = field(default_factory=lambda: list(PHYSICAL))
    told: frozenset[str] | None = frozenset(PHYSICAL)

    def called(self, name: str) -> str:
        """The physical card that a name means at this moment."""
        return name if name in PHYSICAL else self.order[int(name.removeprefix("n1/"))]

    def node(self) -> Any:
        if self.told is None:
            return make_node("n1", capacity=CAPACITY)
        gpus = (make_gpu(place, uuid=uuid) for place, uuid in enumerate(self.order) if uuid in self.told)
        return make_node("n1", NodeGpus("n1", tuple(gpus), UNIT_MIB), capacity=CAPACITY)


@dataclass(frozen=True)
class Sold:
    """What a pod has in truth, and how far its Binding has got."""

    pod: Pod
    units: dict[str, int]
    sent: bool = False
    seen: bool = False


class Stage(Enum):
    """How far a Binding has got: its part is claimed, it was sent and answered, the cluster state was shown the bound
    pod."""

    CLAIMED = "claimed"
    SENT = "sent"
    SEEN = "seen"


pods = st.tuples(st.integers(4, UNITS), st.sampled_from([1, 1, 2]), st.booleans(), st.sampled_from(Stage))
"""Units of each card, cards, whether a filter keeps the part first, and how far it gets."""


class InventoryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = ClusterState()
        self.hardware = Hardware()
        self.sold: dict[str, Sold] = {}
        self.numbered_before: set[str] = set()
        """Pods whose records have the numbers of before: an index stands for a card only while cards keep theirs."""
        self._show()

    # -- pods

    @rule(asked=st.lists(pods, min_size=1, max_size=5))
    def ask(self, asked: list[tuple[int, int, bool, Stage]]) -> None:
        """Pods come, each as far as it gets for now."""
        for units, count, keeps, stage in asked:
            uid = self._claim(units, count, keeps=keeps)
            if uid and stage is not Stage.CLAIMED:
                self._send(uid)
            if uid and stage is Stage.SEEN:
                self._see(uid)

    def _claim(self, units: int, count: int, *, keeps: bool) -> str:
        limits = {GPU_MEM: str(units * count)}
        labels = {} if count == 1 else {GPU_COUNT: str(count)}
        uid = make_uid()
        pod = make_pod(
            uid, uid=uid, containers=[{"name": "main", "resources": {"limits": limits}}], metadata={"labels": labels}
        )
        demand = self.cluster.demand_of(pod)
        assert demand is not None
        try:
            placement = self.cluster.fit(demand, "n1")
        except NoRoom:
            return ""
        if keeps:  # a filter keeps it first, the commit makes it its own
            self.cluster.apply(Claimed(demand.request, placement, 10.0))
            kept = self.cluster.reserved_for(demand, "n1")
            assert kept is not None
            placement = kept
        self.cluster.apply(Claimed(demand.request, placement))
        has = {self.hardware.called(part.uuid): part.mib // UNIT_MIB for part in placement.slices()}
        assert sum(has.values()) == units * count, "it does not get what it asks for"
        bound = make_pod(
            uid,
            uid=uid,
            node="n1",
            containers=[{"name": "main", "resources": {"limits": limits}}],
            metadata={"labels": labels, "annotations": {PLACEMENT: write_placement(placement)}},
        )
        self.sold[uid] = Sold(bound, has)
        return uid

    def _send(self, uid: str) -> None:
        """A Binding is made and answered; the informer has not heard of it yet."""
        self.sold[uid] = replace(self.sold[uid], sent=True)
        self.cluster.apply(Confirmed(uid, "n1"))

    def _see(self, uid: str) -> None:
        self.sold[uid] = replace(self.sold[uid], sent=True, seen=True)
        self.cluster.apply(PodSeen(self.sold[uid].pod))

    @rule(stage=st.sampled_from(Stage))
    def go_on(self, stage: Stage) -> None:
        """What became of every Binding is known: refused, made, or seen."""
        for uid, sold in list(self.sold.items()):
            if stage is Stage.SEEN and not sold.seen:
                self._see(uid)
            elif stage is Stage.SENT and not sold.sent:
                self._send(uid)
            elif stage is Stage.CLAIMED and not sold.sent:
                del self.sold[uid]
                self.cluster.drop_claim(uid, "n1")

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.sold:
            uid = data.draw(st.sampled_from(sorted(self.sold)))
            del self.sold[uid]
            self.cluster.apply(PodForgotten(uid))

    # -- the node

    @precondition(lambda self: self.numbered_before.isdisjoint(self.sold))
    @rule()
    def hide(self) -> None:
        self.hardware.told = None
        self._show()

    @rule(cards=st.sets(st.sampled_from(PHYSICAL), min_size=1))
    def publish(self, cards: set[str]) -> None:
        self.hardware.told = frozenset(cards)
        self._show()

    @precondition(lambda self: self.hardware.told is not None and not self._has_made_up_names())
    @rule(order=st.permutations(PHYSICAL))
    def number_anew(self, order: list[str]) -> None:
        self.hardware.order = order
        self.numbered_before |= self.sold.keys()
        self._show()

    @rule()
    def lose_the_node(self) -> None:
        self.cluster.apply(NodeLost("n1"))
        self._show()

    @rule()
    def restart(self) -> None:
        """A new process knows what the cluster shows; Bindings of before that were not made are refused by its term."""
        self.cluster = ClusterState()
        self.sold = {uid: replace(sold, seen=True) for uid, sold in self.sold.items() if sold.sent}
        self._show()

    # -- what must always hold

    @invariant()
    def no_card_is_sold_twice(self) -> None:
        for card, units in self._truth().items():
            assert units <= UNITS, f"{card} is over-sold: {units} of {UNITS}"

    @invariant()
    def what_is_charged_of_the_cards_that_are_shown_is_what_pods_have_of_them(self) -> None:
        charged = {
            self.hardware.called(name): charge.mib // UNIT_MIB
            for name, charge in self.cluster.ledger.used("n1").items()
        }
        shown = PHYSICAL if self.hardware.told is None else self.hardware.told
        truth = self._truth()
        assert {card: charged.get(card, 0) for card in shown} == {card: truth.get(card, 0) for card in shown}

    # -- inside

    def _has_made_up_names(self) -> bool:
        return any("n1/" in sold.pod.metadata.annotations[PLACEMENT] for sold in self.sold.values())

    def _truth(self) -> dict[str, int]:
        units: dict[str, int] = defaultdict(int)
        for sold in self.sold.values():
            for card, own in sold.units.items():
                units[card] += own
        return units

    def _show(self) -> None:
        self.cluster.apply(NodeSeen(self.hardware.node()))
        for sold in self.sold.values():
            if sold.seen:
                self.cluster.apply(PodSeen(sold.pod))
