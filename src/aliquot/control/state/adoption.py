"""Adoption: entering into the ledger what bound pods hold, as they and their nodes tell it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import structlog
from msgspec import structs

from aliquot.control.state.totals import Totals
from aliquot.dialects import Dialect, Dialects, Holding, demand_of, holding_of
from aliquot.dialects.reading import in_doubt
from aliquot.engine import FULL_EFFORT, Effort, NameBlock, judge
from aliquot.errors import AliquotError, BadDemand, NotPlaced
from aliquot.ledger import Entry, Owner, State
from aliquot.model import Part, Placement, Pod, Request, as_shown, charges, made_up_uuid
from aliquot.model.records import PLACEMENT

_log = structlog.get_logger()

_STEPS = FULL_EFFORT // 10
"""For a pod that another system has placed: users can make many of these."""


class Adoption:
    def __init__(self, totals: Totals, dialects: Dialects) -> None:
        self._totals = totals
        self._ledger = totals.ledger
        self._dialects = dialects
        self.provisional: set[str] = set()
        """Pods that an original placed: until it has handed their cards over, it may correct its record."""
        self.first_records: dict[str, str] = {}
        """Our record on each bound pod as it was first seen, by UID; what is written there later is not believed."""
        self.unplaced: dict[str, Pod] = {}
        """Pods on nodes with cards of which nothing says which cards they have, by UID."""
        self.foretold: dict[str, str] = {}
        """Records that stood on pods before they were bound, by UID."""
        self.older: dict[str, Pod] = {}
        """Pods that had keys of an original whose agent chooses cards before they were bound, by UID."""

    def see_unbound(self, pod: Pod) -> bool:
        """A pod that waits. Returns whether it has a record of ours, which nobody writes before the Binding: it is a
        user's. Or keys of an original, which are of an earlier try if a filter of ours keeps a part for the pod."""
        uid, record, keys = pod.metadata.uid, pod.metadata.annotations.get(PLACEMENT), self._keys_of_agents(pod)
        if record is None:
            self.foretold.pop(uid, None)
        else:
            self.foretold[uid] = record
        if keys:
            self.older[uid] = pod
        else:
            self.older.pop(uid, None)
        return bool(record or keys)

    def _keys_of_agents(self, pod: Pod) -> Mapping[str, str]:
        """What stands on a pod in the words of originals whose agents choose cards."""
        choosing = (dialect for dialect in self._dialects.values() if dialect.agent_chooses)
        return {key: value for dialect in choosing for key, value in dialect.written_on(pod).items()}

    def trust(self, uid: str) -> None:
        """We have written what stands on a pod, even if its user has foretold it."""
        self.foretold.pop(uid, None)

    def see(self, pod: Pod) -> None:
        """A bound pod as it is now. It holds something on its node alone."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if self._is_forged(pod):
            pod = _without_record(pod)
        is_foretold = self._is_foretold(pod)
        was_unplaced = self.unplaced.pop(uid, None) is not None
        self._note_older_keys(pod, was_unplaced=was_unplaced)
        if PLACEMENT in pod.metadata.annotations and not is_foretold:
            self.first_records.setdefault(uid, pod.metadata.annotations[PLACEMENT])
        if not self._is_at_home(pod):
            self._adopt(pod, was_unplaced=was_unplaced)
        if is_foretold:
            self.unplaced[uid] = _without_record(pod)
        for claimed in self._ledger.nodes_of(uid) - {node}:
            self._totals.release(uid, claimed)

    def forget(self, uid: str) -> None:
        self.provisional.discard(uid)
        self.unplaced.pop(uid, None)
        self.first_records.pop(uid, None)
        self.foretold.pop(uid, None)
        self.older.pop(uid, None)
        self._totals.release(uid)

    def _is_foretold(self, pod: Pod) -> bool:
        """Whether the record on a bound pod stood there before. Another server that leads may have written the very
        same, so what it names is charged; but it may be its user's, and who leads writes one of ours over it."""
        uid, held = pod.metadata.uid, self._ledger.entry(pod.metadata.uid, pod.spec.node_name)
        if held is not None and held.state is not State.BOUND:
            self.trust(uid)
        record = pod.metadata.annotations.get(PLACEMENT)
        return not pod.started and record is not None and self.foretold.get(uid) == record

    def _is_forged(self, pod: Pod) -> bool:
        """Whether its record is no word of ours: it is there while we only keep cards for the pod. When we write one,
        the claim has no end."""
        held = self._ledger.entry(pod.metadata.uid, pod.spec.node_name)
        is_kept = held is not None and held.state is State.RESERVED
        return is_kept and not pod.started and PLACEMENT in pod.metadata.annotations

    def _is_at_home(self, pod: Pod) -> bool:
        """Whether what a bound pod holds is settled: on cards that its node has. Then its record is not read again, so
        a user who rewrites it gains nothing."""
        entry = self._ledger.entry(pod.metadata.uid, pod.spec.node_name)
        if entry is None or entry.state is not State.BOUND or not entry.placement.containers:
            return False
        if pod.metadata.uid in self.provisional:
            return False
        return entry.charges.keys() <= self._totals.cards(entry.node).by_uuid.keys()

    def _adopt(self, pod: Pod, *, was_unplaced: bool) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        holding = self._holding(pod)
        if holding is None:
            return
        held = self._ledger.entry(uid, node)
        is_known = held is not None and not was_unplaced and self._is_known(held)
        if holding.doubt and not holding.placement.containers and is_known:
            self._ledger.confirm(uid, node)
            return  # a card went away under the pod: what it held before is known, and stays
        if holding.doubt and (held is None or held.placement.containers):
            _log.error(
                "a pod has a card, but which? charged on all it may be", pod=pod.key, node=node, why=holding.doubt
            )
        self._note_if_provisional(pod, holding.placement.dialect)
        self._totals.adopt(_owner(pod), holding.placement, holding.charges, holding.request)

    def _is_known(self, held: Entry) -> bool:
        """Whether it can be told which cards an entry is on: those that its node shows, or such as the node had and has
        no more. Where either side has made-up names, a card that is missing may be one of those that are there."""
        cards = self._totals.cards(held.node)
        parts = list(held.placement.slices())
        if not parts or held.charges.keys() <= cards.by_uuid.keys():
            return bool(parts)
        return not cards.are_made_up and not any(part.uuid == made_up_uuid(held.node, part.index) for part in parts)

    def _holding(self, pod: Pod) -> Holding | None:
        """What there is to enter; nothing without cards: they may come, and then the pod is seen again."""
        uid, cards = pod.metadata.uid, self._totals.cards(pod.spec.node_name)
        if not cards.gpus:
            return None
        if self._is_kept(pod):
            self.unplaced[uid] = pod
            return None
        try:
            if uid in self.older:
                raise NotPlaced("its keys are of an earlier try")
            holding = holding_of(pod, cards, self._dialects)
        except AliquotError as error:
            _log.warning("a bound GPU pod is not placed", pod=pod.key, node=cards.node, why=str(error))
            self.unplaced[uid] = pod
            return self._expected(pod, error) if cards.are_made_up else self._until_placed(pod, error)
        if holding is not None and holding.unnamed:
            self.unplaced[uid] = pod
            return self._any_cards(pod, holding)
        return holding

    def _is_kept(self, pod: Pod) -> bool:
        """Whether a filter of ours keeps cards of our own agent for a pod. An original's keys on it are then older, or
        a user's, and not believed."""
        held, cards = self._ledger.entry(pod.metadata.uid, pod.spec.node_name), self._totals.cards(pod.spec.node_name)
        if held is None or held.state is not State.RESERVED or pod.started or cards.are_made_up:
            return False
        return bool(held.placement.containers)

    def _note_older_keys(self, pod: Pod, *, was_unplaced: bool) -> None:
        """Whether the keys that stood on a pod before still do, and it is ours: a filter has kept a part for it."""
        uid, older = pod.metadata.uid, self.older.pop(pod.metadata.uid, None)
        held, cards = self._ledger.entry(uid, pod.spec.node_name), self._totals.cards(pod.spec.node_name)
        is_ours = held is not None and (held.state is not State.BOUND or was_unplaced)
        if older is None or not is_ours or pod.started or not cards.are_made_up:
            return
        if PLACEMENT not in pod.metadata.annotations and self._keys_of_agents(pod) == self._keys_of_agents(older):
            self.older[uid] = pod

    def _note_if_provisional(self, pod: Pod, dialect: str) -> None:
        is_settled = PLACEMENT in pod.metadata.annotations or self._dialects[dialect].handed_over(pod)
        if is_settled and pod.metadata.uid not in self.older:
            self.provisional.discard(pod.metadata.uid)
        else:
            self.provisional.add(pod.metadata.uid)

    def _any_cards(self, pod: Pod, holding: Holding) -> Holding:
        """A pod that got whole cards from kubelet, which alone knows which: as many empty ones count as its."""
        cards, dialect = self._totals.cards(pod.spec.node_name), self._dialects[holding.placement.dialect]
        likely = self._likely(pod, dialect)
        if likely is None:
            everything = {gpu.uuid: Part(whole=True).on(gpu, 1) for gpu in cards.gpus}
            return replace(holding, charges=everything, doubt=f"{holding.unnamed} cards are not free")
        return likely

    def _expected(self, pod: Pod, error: AliquotError) -> Holding | None:
        """What a pod will get from another vendor's agent, which writes it down later or never: it counts from the
        Binding on. Where a record names a card that is not there, it may be any."""
        cards = self._totals.cards(pod.spec.node_name)
        try:
            dialect = self._dialects.of(pod)
            if dialect is None or (isinstance(error, NotPlaced) and not dialect.unrecorded(pod, cards)):
                return None
            likely = self._likely(pod, dialect) if isinstance(error, NotPlaced) else None
            return likely or in_doubt(pod, [dialect], cards, str(error))
        except BadDemand:
            return None  # nobody gives it anything

    def _until_placed(self, pod: Pod, error: AliquotError) -> Holding | None:
        """What counts on a node of our own agent, which gives nothing before the pod is placed: the whole cards that it
        may get. If none are free, or nobody gives them, then nothing, even if it was charged on every card before."""
        cards = self._totals.cards(pod.spec.node_name)
        if isinstance(error, BadDemand):
            return None
        dialect = self._dialects.of(pod)
        is_unnamed = isinstance(error, NotPlaced) and dialect is not None and not dialect.names_cards
        if dialect is not None and is_unnamed and cards.may_hand_over(dialect.name):
            likely = self._likely(pod, dialect)
            if likely is not None:
                return likely
        held = self._ledger.entry(pod.metadata.uid, cards.node)
        has_got = dialect is not None and dialect.handed_over(pod)
        if held is not None and held.state is State.BOUND and not held.placement.containers and not has_got:
            self._totals.release(held.uid, cards.node)
        return None

    def _likely(self, pod: Pod, dialect: Dialect) -> Holding | None:
        """The part that counts as a pod's already, or that is kept for it, else the one that its dialect's policy
        chooses; None if there is none."""
        uid, cards, request = pod.metadata.uid, self._totals.cards(pod.spec.node_name), dialect.held(pod)
        held = self._ledger.entry(uid, cards.node)
        if held is not None and held.placement.containers:
            shown = as_shown(held.placement, request, cards)
            if {part.uuid for part in shown.slices()} <= cards.by_uuid.keys():
                return Holding(shown, charges(shown, request), request=request)
        with self._totals.without(uid):  # charged on every card, it would be in its own way
            placement = self._free_part(pod, dialect, request)
        return Holding(placement, charges(placement, request), request=request) if placement else None

    def _free_part(self, pod: Pod, dialect: Dialect, request: Request) -> Placement | None:
        """Of the cards that it constraints, if there are such."""
        with suppress(BadDemand):
            asked = demand_of(pod, self._dialects)
            if asked and (wished := self._place(asked.request, dialect, pod.spec.node_name)):
                return wished
        return self._place(request, dialect, pod.spec.node_name)

    def _place(self, request: Request, dialect: Dialect, node: str) -> Placement | None:
        fleet, policies = self._totals.fleet, (dialect.gpu_policy, dialect.node_policy)
        columns = fleet.table.find(NameBlock.of([node]))
        return judge(fleet, request, *policies, effort=Effort(_STEPS), among=columns).placement(node)


def _without_record(pod: Pod) -> Pod:
    kept = {key: value for key, value in pod.metadata.annotations.items() if key != PLACEMENT}
    return structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=kept))


def _owner(pod: Pod) -> Owner:
    return Owner(pod.metadata.uid, pod.key, pod.priority)
