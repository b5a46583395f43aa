"""A Block: the cards of nodes with a similar number of cards, as arrays, so that a request is judged on all of them at
once.

Arrays are GPU-major (row = a node's n-th card by index, column = node): a request touches few, long rows. Only `put`,
`remove`, `set_load` and `set_host` write them, in place.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.card_kinds import CardType, NodeKind, card_type, node_kind
from aliquot.engine.numbering import Numbering
from aliquot.engine.state import NodeState
from aliquot.engine.topology import Wiring, wiring_of
from aliquot.model import CORES, UNKNOWN_HOST, Charge, Gpu, Host, NodeGpus
from aliquot.model.selling import left_of, mode_allows

_NOTHING = Charge()
_CLOCK = count(1)
"""For all blocks: a block that replaces another never shows a time that the other had."""
_WARM_UP = 60.0
"""Seconds that a pod may take to pull its image, start and load its card."""
_FIRST_CELLS = 512
"""Cards for which a new block has room."""


class _CardArray(NamedTuple):
    """An array with a value per card; `fill` is its value where there is no card.

    `decides`: two cards with different values may take different parts. Quota, load, wiring and values that follow from
    other arrays do not count.
    """

    kind: type
    fill: Any
    decides: bool


_PER_CARD: Mapping[str, _CardArray] = {
    "free_mib": _CardArray(np.int64, 0, decides=True),
    "free_cores": _CardArray(np.int64, 0, decides=True),
    "free_slots": _CardArray(np.int64, 0, decides=True),
    "left": _CardArray(np.int64, 0, decides=False),
    "mib": _CardArray(np.int64, 0, decides=True),
    "slots": _CardArray(np.int64, 0, decides=True),
    "shares": _CardArray(np.int64, 0, decides=True),
    "used_slots": _CardArray(np.int64, 0, decides=True),
    "model_id": _CardArray(np.int64, 0, decides=True),
    "profile_id": _CardArray(np.int64, 0, decides=True),
    "type_id": _CardArray(np.int64, 0, decides=False),
    "numa": _CardArray(np.int64, -1, decides=False),
    "has": _CardArray(np.bool_, False, decides=False),
    "is_cut": _CardArray(np.bool_, False, decides=False),
    "sellable": _CardArray(np.bool_, False, decides=True),
    "for_shared": _CardArray(np.bool_, False, decides=True),
    "for_whole": _CardArray(np.bool_, False, decides=True),
    "for_slots": _CardArray(np.bool_, False, decides=True),
    "open_shared": _CardArray(np.bool_, False, decides=False),
    "open_whole": _CardArray(np.bool_, False, decides=False),
    "open_slots": _CardArray(np.bool_, False, decides=False),
    "load": _CardArray(np.float64, np.nan, decides=False),
    "load_at": _CardArray(np.float64, np.nan, decides=False),
    "placed_since": _CardArray(np.float64, 0.0, decides=False),
}
DECISIVE = tuple(name for name, array in _PER_CARD.items() if array.decides)
_PER_NODE: Mapping[str, tuple[type, Any]] = {
    "unit_mib": (np.int64, 1),
    "wiring_id": (np.int64, 0),
    "rest_mib": (np.int64, 0),
    "observed": (np.bool_, False),
    "node_mib": (np.int64, 0),
    "node_free_mib": (np.int64, 0),
    "node_free_cores": (np.int64, 0),
    "node_cards": (np.int64, 0),
    "per_node_mib": (np.float64, 0.0),
    "per_node_cores": (np.float64, 0.0),
    "size": (np.int64, 0),
    "host_cpu": (np.int64, UNKNOWN_HOST.cpu),
    "host_memory": (np.int64, UNKNOWN_HOST.memory),
    "kind_id": (np.int64, 0),
    "changed": (np.int64, 0),
}
"""Name, type, and the value where there is no node."""


class PlacedEntry(Protocol):
    """What the arrays need to know of a ledger entry."""

    @property
    def uid(self) -> str: ...
    @property
    def since(self) -> float: ...
    @property
    def charges(self) -> Mapping[str, Charge]: ...


class Block:
    """The attributes are the arrays, cut to the columns in use. Where there is no card, nothing is open and nothing is
    free.

    A vacant column (its name is "") has no cards. To policies, a block is the fleet that they judge.
    """

    free_mib: NDArray[np.int64]
    free_cores: NDArray[np.int64]
    free_slots: NDArray[np.int64]
    left: NDArray[np.int64]
    """Memory and cores in one number, see `left_share`."""
    mib: NDArray[np.int64]
    slots: NDArray[np.int64]
    shares: NDArray[np.int64]
    """Parts that share the card without MPS now."""
    used_slots: NDArray[np.int64]
    """MPS slots that are taken, even of a card that no longer has any."""
    model_id: NDArray[np.int64]
    """Index into `models`."""
    profile_id: NDArray[np.int64]
    """Index into `profiles`; 0 is a card that is not a MIG instance."""
    type_id: NDArray[np.int64]
    """Index into `types`: cards that quotas count alike."""
    numa: NDArray[np.int64]
    """-1 if unknown."""
    has: NDArray[np.bool_]
    is_cut: NDArray[np.bool_]
    """Cards that are cut into MIG instances."""
    sellable: NDArray[np.bool_]
    for_shared: NDArray[np.bool_]
    for_whole: NDArray[np.bool_]
    for_slots: NDArray[np.bool_]
    """Sellable cards whose mode allows parts of this kind."""
    open_shared: NDArray[np.bool_]
    open_whole: NDArray[np.bool_]
    open_slots: NDArray[np.bool_]
    """Those that can take such a part next to the pods they have now. Nothing of `open_whole` cards is taken. The
    others have cores left, and no pod shares them in another mode."""
    load: NDArray[np.float64]
    """Measured utilization, 0 to 1; NaN if there is no sample."""
    load_at: NDArray[np.float64]
    placed_since: NDArray[np.float64]
    """Share of the card that was placed too late to show in the sample."""
    unit_mib: NDArray[np.int64]
    wiring_id: NDArray[np.int64]
    """Nodes with the same number have the same wiring."""
    rest_mib: NDArray[np.int64]
    """Memory of a node that belongs to none of its cards."""
    observed: NDArray[np.bool_]
    """Nodes where another vendor's device plugin chooses the cards."""
    node_mib: NDArray[np.int64]
    node_free_mib: NDArray[np.int64]
    node_free_cores: NDArray[np.int64]
    node_cards: NDArray[np.int64]
    """Sums over the sellable cards of a node."""
    per_node_mib: NDArray[np.float64]
    per_node_cores: NDArray[np.float64]
    """The reciprocals of a node's total MiB and cores, 0 if it has none: shares of nodes then take one
    multiplication."""
    size: NDArray[np.int64]
    """MiB of each of a node's sellable cards, -1 if they differ."""
    host_cpu: NDArray[np.int64]
    host_memory: NDArray[np.int64]
    """What a node has left of CPU (thousandths of a core) and memory (MiB), as `model.Host`."""
    kind_id: NDArray[np.int64]
    """Index into `kinds`; 0 is a node without sellable cards."""
    changed: NDArray[np.int64]
    """The `clock` of the last change of a node, so that policies can keep what they worked out for the others."""

    def __init__(self, rows: int, fleet: Iterable["Block"] = (), *, other_agent: bool = False) -> None:
        """A block for nodes with up to `rows` cards, which our agent or an `other_agent` hands out. `fleet` holds all
        blocks, including this one."""
        self.rows = rows
        self.other_agent = other_agent
        self.names: list[str] = []
        self.clock = 0
        """When any of its nodes changed last. Every change has a time of its own, in whichever block."""
        self._fleet = fleet
        self._columns: dict[str, int] = {}
        self._vacant: list[int] = []
        self._states: list[NodeState | None] = []
        self._placed: list[tuple[PlacedEntry, ...]] = []
        self._measured: list[frozenset[str]] = []
        self._models = Numbering[str]()
        self._profiles = Numbering[str]()
        self._profiles.take("")  # never given back, so that it stays number 0
        self._types = Numbering[CardType]()
        self._wirings = Numbering[Wiring]()
        self._kinds = Numbering[NodeKind]()
        self._kinds.take(NodeKind())
        self._hosts: list[Host] = []
        self._places: dict[str, set[tuple[int, int]]] = {}
        self._serves: dict[str, NDArray[np.bool_]] = {}
        self._card_mib: NDArray[np.int64] | None = None
        first = max(1, _FIRST_CELLS // rows)
        self._base: dict[str, NDArray[Any]] = {
            **{name: np.full((rows, first), fill, kind) for name, (kind, fill, _) in _PER_CARD.items()},
            **{name: np.full(first, fill, kind) for name, (kind, fill) in _PER_NODE.items()},
        }
        self._expose()

    # -- writing

    def put(self, cards: NodeGpus, used: Mapping[str, Charge], placed: Iterable[PlacedEntry] = ()) -> None:
        """Sets a node's current cards, what is used of them, and the ledger entries on it."""
        column = self._column(cards.node)
        self._make_room(column + 1)
        before = self._states[column]
        if before is None or before.cards != cards:
            self._put_cards(column, before, cards)
            self._states[column] = NodeState(cards, {})
            self._put_kind(column, self._hosts[column])
        self._states[column] = NodeState(cards, dict(used))
        self._placed[column] = tuple(placed)
        if cards.parents:
            self._put_sellable(column, NodeState(cards, used))
        self._put_used(column, cards, used)
        self._put_sums(column)
        self._put_placed(column)
        self._touch(column)

    def remove(self, node: str) -> None:
        column = self._columns.pop(node, None)
        if column is None:
            return
        self._clear(column)
        self._touch(column)
        self._states[column] = None
        self._hosts[column] = UNKNOWN_HOST
        self._placed[column] = ()
        self._measured[column] = frozenset()
        self.names[column] = ""
        self._vacant.append(column)
        for mask in self._serves.values():
            mask[column] = False

    def set_load(
        self, node: str, load: Mapping[str, tuple[float, float]], measured: frozenset[str] = frozenset()
    ) -> None:
        """Sets how busy each card was and when that was measured, by uuid. Cards that are left out have no sample.
        `measured` are the UIDs of the pods that were seen at work."""
        state, column = self.state(node), self._columns.get(node)
        if state is None or column is None:
            return
        self._measured[column] = measured
        for row, gpu in enumerate(state.cards.gpus):
            self.load[row, column], self.load_at[row, column] = load.get(gpu.uuid, (np.nan, np.nan))
        self._put_placed(column)

    def set_host(self, node: str, left: Host, whole: Host | None = None) -> None:
        """Sets what a node has left of CPU and memory, and what it would have without any pod (as much, if this is left
        out)."""
        if (column := self._columns.get(node)) is not None:
            self.host_cpu[column], self.host_memory[column] = left.cpu, left.memory
            if self._hosts[column] != (whole or left):
                self._put_kind(column, whole or left)
            self._touch(column)

    # -- reading

    @property
    def width(self) -> int:
        """Columns in use or vacant. Later columns are empty."""
        return len(self.names)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, including the room for more nodes."""
        return sum(array.nbytes for array in (*self._base.values(), *self._serves.values()))

    @property
    def models(self) -> Sequence[str]:
        return self._models.values

    @property
    def profiles(self) -> Sequence[str]:
        return self._profiles.values

    @property
    def types(self) -> Sequence[CardType]:
        return self._types.values

    @property
    def kinds(self) -> Sequence[NodeKind]:
        return self._kinds.values

    @property
    def kinds_in_use(self) -> tuple[NodeKind, ...]:
        return self._kinds.in_use

    @property
    def fleet(self) -> Iterable["Block"]:
        """All blocks of the Fleet, including this one."""
        return self._fleet or (self,)

    @property
    def largest_mib(self) -> int:
        """The memory of the largest card of all blocks."""
        return max(int(block.mib.max(initial=0)) for block in self.fleet)

    def column(self, node: str) -> int | None:
        return self._columns.get(node)

    @property
    def columns(self) -> Mapping[str, int]:
        """The column of every node."""
        return self._columns

    def state(self, node: str) -> NodeState | None:
        column = self._columns.get(node)
        return None if column is None else self._states[column]

    def state_at(self, column: int) -> NodeState:
        state = self._states[column]
        assert state is not None, "a vacant column holds no node"
        return state

    def loads(self, node: str) -> dict[str, tuple[float, float]]:
        """The values of a node's cards that `set_load` was given."""
        column = self._columns[node]
        return {
            gpu.uuid: (float(self.load[row, column]), float(self.load_at[row, column]))
            for row, gpu in enumerate(self.state_at(column).cards.gpus)
        }

    def measured(self, node: str) -> frozenset[str]:
        """The UIDs that `set_load` was given."""
        return self._measured[self._columns[node]]

    def host(self, node: str) -> Host:
        """What a node has left of CPU and memory."""
        column = self._columns[node]
        return Host(int(self.host_cpu[column]), int(self.host_memory[column]))

    def whole_host(self, node: str) -> Host:
        """What a node would have without any pod."""
        return self._hosts[self._columns[node]]

    def shows(self, cards: NodeGpus, used: Mapping[str, Charge]) -> bool:
        """Whether the block has the node with these cards and this usage."""
        column, state = self._columns.get(cards.node), self.state(cards.node)
        if column is None or state is None or state.cards != cards or state.used != used:
            return False
        at = np.s_[: len(cards.gpus), column]
        left = [left_of(gpu, used.get(gpu.uuid, _NOTHING)) for gpu in cards.gpus]
        shown = zip(self.free_cores[at].tolist(), self.free_mib[at].tolist(), self.free_slots[at].tolist(), strict=True)
        return list(shown) == [(card.cores, card.mib, card.slots) for card in left]

    @property
    def card_mib(self) -> NDArray[np.int64]:
        """The memory of each sellable card: [width] if the cards of every node are alike, else [rows, width]."""
        if self._card_mib is None:
            self._card_mib = self.mib if (self.size < 0).any() else self.size
        return self._card_mib

    def places_of(self, uuid: str) -> Iterable[tuple[int, int]]:
        """(row, column) of a card. There are several if two nodes claim to have it."""
        return self._places.get(uuid, ())

    def wiring(self, column: int) -> Wiring:
        return self._wirings.values[int(self.wiring_id[column])]

    def serves(self, dialect: str) -> NDArray[np.bool_]:
        """[width]: nodes that serve a dialect."""
        mask = self._serves.get(dialect)
        if mask is None:
            mask = self._serves[dialect] = np.zeros(self._base["unit_mib"].shape, np.bool_)
            for column, state in enumerate(self._states):
                mask[column] = state is not None and state.cards.serves(dialect)
        return mask[: self.width]

    # -- inside

    def _touch(self, column: int) -> None:
        self.changed[column] = self.clock = next(_CLOCK)

    def _put_cards(self, column: int, before: NodeState | None, cards: NodeGpus) -> None:
        loads = {} if before is None else self.loads(cards.node)
        host = self.host(cards.node)
        self._clear(column)
        self.host_cpu[column], self.host_memory[column] = host.cpu, host.memory
        self.unit_mib[column] = cards.unit_mib
        self.rest_mib[column] = cards.rest_mib
        self.observed[column] = cards.observed
        self.wiring_id[column] = self._wirings.take(wiring_of(cards.gpus))
        for row, gpu in enumerate(cards.gpus):
            self._places.setdefault(gpu.uuid, set()).add((row, column))
            self.has[row, column] = True
            self.is_cut[row, column] = gpu.uuid in cards.parents
            self.mib[row, column] = gpu.mib
            self.slots[row, column] = gpu.slots
            self.model_id[row, column] = self._models.take(gpu.model)
            self.profile_id[row, column] = self._profiles.take(gpu.profile)
            self.type_id[row, column] = self._types.take(card_type(cards, gpu))
            self.numa[row, column] = -1 if gpu.numa is None else gpu.numa
            self.load[row, column], self.load_at[row, column] = loads.get(gpu.uuid, (np.nan, np.nan))
        self._put_sellable(column, NodeState(cards, {}))
        sizes = {gpu.mib for gpu in cards.gpus if cards.sells(gpu)}
        self.size[column] = sizes.pop() if len(sizes) == 1 else -bool(sizes)
        for dialect, mask in self._serves.items():
            mask[column] = cards.serves(dialect)

    def _put_kind(self, column: int, host: Host) -> None:
        self._hosts[column] = host
        if number := int(self.kind_id[column]):
            self._kinds.give_back(number)
        kind = NodeKind() if (state := self._states[column]) is None else node_kind(state.cards, host)
        self.kind_id[column] = self._kinds.take(kind) if kind.cards else 0

    def _put_sellable(self, column: int, state: NodeState) -> None:
        for row, gpu in enumerate(state.cards.gpus):
            sells = state.sells(gpu)
            self.sellable[row, column] = sells
            self.for_shared[row, column] = sells and mode_allows(gpu, Charge(shares=1))
            self.for_whole[row, column] = sells and mode_allows(gpu, Charge(CORES, gpu.mib, shares=1))
            self.for_slots[row, column] = sells and mode_allows(gpu, Charge(slots=1))

    def _put_used(self, column: int, cards: NodeGpus, used: Mapping[str, Charge]) -> None:
        at = np.s_[: len(cards.gpus), column]
        taken = [used.get(gpu.uuid, _NOTHING) for gpu in cards.gpus]
        left = [left_of(gpu, charge) for gpu, charge in zip(cards.gpus, taken, strict=True)]
        self.free_mib[at] = [card.mib for card in left]
        self.free_cores[at] = [card.cores for card in left]
        self.free_slots[at] = [card.slots for card in left]
        self.shares[at] = [charge.shares for charge in taken]
        self.used_slots[at] = [charge.slots for charge in taken]
        self.left[at] = left_share(self.free_mib[at], self.free_cores[at], self.mib[at])
        has_cores = self.free_cores[at] > 0
        no_slots = self.used_slots[at] == 0
        untouched = (self.free_cores[at] == CORES) & (self.free_mib[at] == self.mib[at])
        self.open_shared[at] = self.for_shared[at] & has_cores & no_slots
        self.open_whole[at] = self.for_whole[at] & untouched & no_slots
        self.open_slots[at] = self.for_slots[at] & has_cores & (self.shares[at] == 0)

    def _put_sums(self, column: int) -> None:
        sells = self.sellable[:, column]
        mib, count = int(self.mib[sells, column].sum()), int(np.count_nonzero(sells))
        self.node_mib[column] = mib
        self.node_free_mib[column] = self.free_mib[sells, column].sum()
        self.node_free_cores[column] = self.free_cores[sells, column].sum()
        self.node_cards[column] = count
        self.per_node_mib[column] = 1 / mib if mib else 0.0
        self.per_node_cores[column] = 1 / (count * CORES) if count else 0.0

    def _put_placed(self, column: int) -> None:
        """A pod that was measured is in the load. One that was placed long before the sample, and was not measured, is
        idle."""
        state, measured = self.state_at(column), self._measured[column]
        for row, gpu in enumerate(state.cards.gpus):
            late = self.load_at[row, column] - _WARM_UP
            unseen = (
                entry.charges.get(gpu.uuid)
                for entry in self._placed[column]
                if entry.since > late and entry.uid not in measured
            )
            self.placed_since[row, column] = sum(_share(charge, gpu) for charge in unseen if charge)

    def _clear(self, column: int) -> None:
        self._card_mib = None
        state = self._states[column]
        if state is not None:
            self._wirings.give_back(int(self.wiring_id[column]))
            if number := int(self.kind_id[column]):
                self._kinds.give_back(number)
            for row, gpu in enumerate(state.cards.gpus):
                self._clear_card(row, column, gpu)
        for name, (_, fill, _) in _PER_CARD.items():
            self._base[name][:, column] = fill
        for name, (_, fill) in _PER_NODE.items():
            self._base[name][column] = fill

    def _clear_card(self, row: int, column: int, gpu: Gpu) -> None:
        self._models.give_back(int(self.model_id[row, column]))
        self._profiles.give_back(int(self.profile_id[row, column]))
        self._types.give_back(int(self.type_id[row, column]))
        self._places[gpu.uuid].discard((row, column))
        if not self._places[gpu.uuid]:
            del self._places[gpu.uuid]

    def _column(self, node: str) -> int:
        if node not in self._columns:
            if self._vacant:
                column = self._vacant.pop()
                self.names[column] = node
            else:
                column = len(self.names)
                self.names.append(node)
                self._states.append(None)
                self._placed.append(())
                self._measured.append(frozenset())
                self._hosts.append(UNKNOWN_HOST)
            self._columns[node] = column
        return self._columns[node]

    def _make_room(self, nodes: int) -> None:
        have = self._base["unit_mib"].shape[0]
        if nodes > have:
            for name, (_, fill, _) in _PER_CARD.items():
                self._base[name] = np.pad(self._base[name], ((0, 0), (0, have)), constant_values=fill)
            for name, (_, fill) in _PER_NODE.items():
                self._base[name] = np.pad(self._base[name], (0, have), constant_values=fill)
            self._serves = {dialect: np.pad(mask, (0, have)) for dialect, mask in self._serves.items()}
        if self.has.shape[1] != self.width:
            self._expose()

    def _expose(self) -> None:
        self._card_mib = None
        for name in _PER_CARD:
            setattr(self, name, self._base[name][:, : self.width])
        for name in _PER_NODE:
            setattr(self, name, self._base[name][: self.width])


def left_share(free_mib: NDArray[np.int64], free_cores: NDArray[np.int64], mib: NDArray[np.int64]) -> NDArray[np.int64]:
    """How much of a card is left: its share of memory plus its share of cores, in millionths."""
    return np.asarray(free_mib * 1_000_000 // np.maximum(mib, 1) + free_cores * (1_000_000 // CORES))


def _share(charge: Charge, gpu: Gpu) -> float:
    """How busy a part will make a card, judged by its size: its cores, or its memory if it has no cores."""
    return charge.cores / CORES if charge.cores else charge.mib / max(1, gpu.mib)
