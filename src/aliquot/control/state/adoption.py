"""Adoption: enter into the ledger what bound pods hold, according to the pods and their nodes."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from msgspec import structs

from aliquot import engine
from aliquot.control.state.observed_nodes import ObservedNodes
from aliquot.control.state.totals import Totals
from aliquot.control.state.trial import open_trial
from aliquot.dialects import Dialect, Dialects, Holding, demand_of, holding_of
from aliquot.dialects.observed_pods import observed_holding
from aliquot.dialects.reading import in_doubt
from aliquot.engine import FULL_EFFORT, Effort
from aliquot.errors import AliquotError, BadDemand, NotPlaced
from aliquot.lazy_log import LazyLogger
from aliquot.ledger import Entry, Owner, State
from aliquot.model import NodeGpus, Part, Placement, Pod, Request, as_shown, charges, made_up_uuid
from aliquot.model.records import OBSERVED, PLACEMENT

_log = LazyLogger()

_STEPS = FULL_EFFORT // 10
"""For a pod placed by another system: users can create many of these."""


class Adoption:
    def __init__(self, totals: Totals, dialects: Dialects) -> None:
        self._totals = totals
        self._ledger = totals.ledger
        self._dialects = dialects
        self.observed = ObservedNodes(totals)
        self.provisional: set[str] = set()
        """Pods placed by an original: it may correct its record until it has handed their cards over."""
        self.first_records: dict[str, str] = {}
        """Our record on each bound pod as first seen, by UID. Later changes of it are not trusted."""
        self.named_by_agent: set[str] = set()
        """Pods whose cards our agent has told, because nothing else names them. The first such record counts."""
        self.unplaced: dict[str, Pod] = {}
        """Pods with unknown cards, on nodes that have cards, by UID."""
        self.foretold: dict[str, str] = {}
        """Records present on pods before they were bound, by UID."""
        self.older: dict[str, Pod] = {}
        """Pods with annotations of an original whose agent chooses cards, set before they were bound, by UID."""

    def see_unbound(self, pod: Pod) -> bool:
        """Take in an unbound pod. Returns whether it has our record or annotations of an original. We never write a
        record before the Binding, so it is a user's. An original's annotations are stale if our filter reserved a part
        for the pod."""
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
        """The annotations on a pod from originals whose agents choose cards."""
        choosing = (dialect for dialect in self._dialects.values() if dialect.agent_chooses)
        return {key: value for dialect in choosing for key, value in dialect.written_on(pod).items()}

    def trust(self, uid: str) -> None:
        """Trust the record on a pod, because we wrote it, even if its user predicted it."""
        self.foretold.pop(uid, None)

    def see(self, pod: Pod) -> None:
        """Take in a bound pod. It holds something on its own node only."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not self._see_observed(pod):
            self._see_owned(pod)
        for claimed in self._ledger.nodes_of(uid) - {node}:
            self._totals.release(uid, claimed)

    def _see_observed(self, pod: Pod) -> bool:
        """Whether another vendor's device plugin gives the pod its cards."""
        uid, cards = pod.metadata.uid, self._totals.cards(pod.spec.node_name)
        holding = None
        if cards.observed:
            with suppress(BadDemand):
                holding = observed_holding(pod, cards, self._dialects)
        if holding is None:
            self.observed.forget(uid)
            return False
        self.unplaced.pop(uid, None)
        self.provisional.discard(uid)
        self.observed.see(_owner(pod), holding)
        return True

    def _see_owned(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        held = self._ledger.entry(uid, node)
        if _is_forged(pod, held):
            pod = _without_record(pod)
        is_foretold = self._is_foretold(pod, held)
        was_unplaced = self.unplaced.pop(uid, None) is not None
        self._note_older_keys(pod, held, was_unplaced=was_unplaced)
        if PLACEMENT in pod.metadata.annotations and not is_foretold:
            self.first_records.setdefault(uid, pod.metadata.annotations[PLACEMENT])
        if self._is_named_now(pod) or not self._is_at_home(pod, held):
            self._adopt(pod, was_unplaced=was_unplaced)
        if is_foretold:
            self.unplaced[uid] = _without_record(pod)

    def forget(self, uid: str) -> None:
        self.provisional.discard(uid)
        self.named_by_agent.discard(uid)
        self.unplaced.pop(uid, None)
        self.first_records.pop(uid, None)
        self.foretold.pop(uid, None)
        self.older.pop(uid, None)
        self._totals.release(uid)
        self.observed.forget(uid)

    def _is_foretold(self, pod: Pod, held: Entry | None) -> bool:
        """Whether the record on a bound pod was there before the Binding. Another leader may have written the same
        record, so we charge what it names. It may also be a user's, so the leader overwrites it."""
        uid = pod.metadata.uid
        if held is not None and held.state is not State.BOUND:
            self.trust(uid)
        record = pod.metadata.annotations.get(PLACEMENT)
        return record is not None and self.foretold.get(uid) == record and not pod.started

    def _is_named_now(self, pod: Pod) -> bool:
        """Whether our agent has just told which cards an adopted pod has. Until then any cards counted as its."""
        uid = pod.metadata.uid
        if OBSERVED not in pod.metadata.annotations or uid in self.named_by_agent:
            return False
        self.named_by_agent.add(uid)
        return True

    def _is_at_home(self, pod: Pod, entry: Entry | None) -> bool:
        """Whether a bound pod's holding is settled, on cards that its node has. Its record is then never read again, so
        a user gains nothing by rewriting it."""
        if entry is None or entry.state is not State.BOUND or not entry.placement.containers:
            return False
        cards = self._totals.cards(entry.node)
        if pod.metadata.uid in self.provisional or self._has_new_numbers(pod, entry, cards):
            return False
        return entry.charges.keys() <= cards.by_uuid.keys()

    def _has_new_numbers(self, pod: Pod, entry: Entry, cards: NodeGpus) -> bool:
        """Whether an original's record was read while the node's inventory was missing, and is there now, or the other
        way round. Originals number cards by index or by minor, and without an inventory these are the same."""
        was_made_up = any(part.uuid == made_up_uuid(entry.node, part.index) for part in entry.placement.slices())
        return PLACEMENT not in pod.metadata.annotations and was_made_up != cards.are_made_up

    def _adopt(self, pod: Pod, *, was_unplaced: bool) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        holding = self._holding(pod)
        if holding is None:
            return
        held = self._ledger.entry(uid, node)
        is_known = held is not None and not was_unplaced and self._is_known(held)
        if holding.doubt and not holding.placement.containers and is_known:
            self._ledger.confirm(uid, node)
            return  # a card went away under the pod: the entry names what it held, and stays
        if holding.doubt and (held is None or held.placement.containers):
            _log.error(
                "cannot tell which card a pod holds, charging every card it may hold",
                pod=pod.key,
                node=node,
                why=holding.doubt,
            )
        self._note_if_provisional(pod, holding.placement.dialect)
        self._totals.adopt(_owner(pod), holding.placement, holding.charges, holding.request)

    def _is_known(self, held: Entry) -> bool:
        """Whether we know the cards of an entry: its node shows them, or had them and lost them. With made-up names on
        either side, a missing card may be one of the present ones."""
        cards = self._totals.cards(held.node)
        parts = list(held.placement.slices())
        if not parts or held.charges.keys() <= cards.by_uuid.keys():
            return bool(parts)
        return not cards.are_made_up and not any(part.uuid == made_up_uuid(held.node, part.index) for part in parts)

    def _holding(self, pod: Pod) -> Holding | None:
        """What to enter for a pod; None on a node without cards: when they appear, the pod is read again."""
        uid, cards = pod.metadata.uid, self._totals.cards(pod.spec.node_name)
        if not cards.gpus:
            return None
        if self._is_kept(pod):
            self.unplaced[uid] = pod
            return None
        try:
            if uid in self.older:
                raise NotPlaced("its annotations are from an earlier attempt")
            holding = holding_of(pod, cards, self._dialects)
        except AliquotError as error:
            _log.warning("a bound GPU pod has no placement", pod=pod.key, node=cards.node, why=str(error))
            self.unplaced[uid] = pod
            return self._expected(pod, error) if cards.are_made_up else self._until_placed(pod, error)
        if holding is not None and holding.unnamed:
            self.unplaced[uid] = pod
            return self._any_cards(pod, holding)
        return holding

    def _is_kept(self, pod: Pod) -> bool:
        """Whether our filter reserved cards of our own agent for a pod. An original's annotations on it are then stale
        or a user's, and not trusted."""
        held, cards = self._ledger.entry(pod.metadata.uid, pod.spec.node_name), self._totals.cards(pod.spec.node_name)
        if held is None or held.state is not State.RESERVED or pod.started or cards.are_made_up:
            return False
        return bool(held.placement.containers)

    def _note_older_keys(self, pod: Pod, held: Entry | None, *, was_unplaced: bool) -> None:
        """Remember a pod that still has its stale annotations and is ours: a filter reserved a part for it."""
        uid, older = pod.metadata.uid, self.older.pop(pod.metadata.uid, None)
        is_ours = held is not None and (held.state is not State.BOUND or was_unplaced)
        if older is None or not is_ours or pod.started or not self._totals.cards(pod.spec.node_name).are_made_up:
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
        """Charge a pod that got whole cards from kubelet. Only kubelet knows them, so the same number of free cards
        counts."""
        cards, dialect = self._totals.cards(pod.spec.node_name), self._dialects[holding.placement.dialect]
        likely = self._likely(pod, dialect)
        if likely is None:
            everything = {gpu.uuid: Part(whole=True).on(gpu, 1) for gpu in cards.gpus}
            return replace(holding, charges=everything, doubt=f"{holding.unnamed} cards are not free")
        return likely

    def _expected(self, pod: Pod, error: AliquotError) -> Holding | None:
        """What another vendor's agent will give a pod. The agent records it later or never, so it counts from the
        Binding on. If a record names a missing card, it may be any card."""
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
        """What counts on a node of our own agent, which gives nothing before placement: the whole cards that the pod
        may get. If none are free, or nobody gives them, nothing counts, even if every card was charged before."""
        cards = self._totals.cards(pod.spec.node_name)
        if isinstance(error, BadDemand):
            return None
        dialect = self._dialects.of(pod)
        is_unnamed = isinstance(error, NotPlaced) and dialect is not None and not dialect.names_cards
        is_placed_late = dialect is not None and cards.may_hand_over(dialect.name) and cards.serves(dialect.name)
        if dialect is not None and is_unnamed and is_placed_late:
            likely = self._likely(pod, dialect)
            if likely is not None:
                return likely
        held = self._ledger.entry(pod.metadata.uid, cards.node)
        has_run = dialect is not None and pod.has_run(dialect.guards)
        if held is not None and held.state is State.BOUND and not held.placement.containers and not has_run:
            self._totals.release(held.uid, cards.node)
        return None

    def _likely(self, pod: Pod, dialect: Dialect) -> Holding | None:
        """The part already charged to a pod or reserved for it, else the choice of its dialect's policy; None if there
        is none."""
        uid, cards, request = pod.metadata.uid, self._totals.cards(pod.spec.node_name), dialect.held(pod)
        held = self._ledger.entry(uid, cards.node)
        if held is not None and held.placement.containers:
            shown = as_shown(held.placement, request, cards)
            if {part.uuid for part in shown.slices()} <= cards.by_uuid.keys():
                return Holding(shown, charges(shown, request), request=request)
        with open_trial(self._totals) as trial:
            trial.remove(uid)  # its own charge on every card would block it
            placement = self._free_part(pod, dialect, request)
        return Holding(placement, charges(placement, request), request=request) if placement else None

    def _free_part(self, pod: Pod, dialect: Dialect, request: Request) -> Placement | None:
        """A free part, preferably on the cards that its constraints select."""
        with suppress(BadDemand):
            asked = demand_of(pod, self._dialects)
            if asked and (wished := self._place(asked.request, dialect, pod.spec.node_name)):
                return wished
        return self._place(request, dialect, pod.spec.node_name)

    def _place(self, request: Request, dialect: Dialect, node: str) -> Placement | None:
        fleet, policies = self._totals.fleet, (dialect.gpu_policy, dialect.node_policy)
        columns = fleet.table.find(engine.NameBlock.of([node]))
        return engine.judge(fleet, request, *policies, effort=Effort(_STEPS), among=columns).placement(node)


def _is_forged(pod: Pod, held: Entry | None) -> bool:
    """Whether the record on a pod is not ours: it exists while the pod has only a reservation. When we write a record,
    the claim does not expire."""
    is_kept = held is not None and held.state is State.RESERVED
    return is_kept and not pod.started and PLACEMENT in pod.metadata.annotations


def _without_record(pod: Pod) -> Pod:
    kept = {key: value for key, value in pod.metadata.annotations.items() if key != PLACEMENT}
    return structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=kept))


def _owner(pod: Pod) -> Owner:
    return Owner(pod.metadata.uid, pod.key, pod.priority)
