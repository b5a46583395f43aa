"""How much each namespace uses of which kind of card, updated with every ledger entry, so that no decision has to count
40,000 pods.

Sums are integers: removing an amount leaves exactly what was there before.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from aliquot.engine.card_kinds import CardKind, kind_of
from aliquot.model import CORES, Charge, Gpu, NodeGpus


class Amount(NamedTuple):
    """What is used of one kind, in fractions of a card's memory: `card_parts / (100 x of_mib)` are cards, `core_parts /
    of_mib` percent of cores."""

    card_parts: int = 0
    core_parts: int = 0
    mib: int = 0

    def __add__(self, other: "Amount") -> "Amount":  # type: ignore[override]
        return Amount(self.card_parts + other.card_parts, self.core_parts + other.core_parts, self.mib + other.mib)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.card_parts - other.card_parts, self.core_parts - other.core_parts, self.mib - other.mib)

    def cards(self, kind: CardKind) -> Fraction:
        return Fraction(self.card_parts, CORES * kind.of_mib)

    def cores(self, kind: CardKind) -> Fraction:
        return Fraction(self.core_parts, kind.of_mib)


_NOTHING = Amount()


def amount_of(gpu: Gpu, charge: Charge) -> Amount:
    """A part counts by its cores or, if it has none, by its share of the card's memory."""
    core_parts = charge.cores * gpu.mib
    return Amount(core_parts or charge.mib * CORES, core_parts, charge.mib)


_UNKNOWN_CARD = 1
"""The size of a card that the node does not have (any more): any part of it counts as the whole card."""


def amounts_of(cards: NodeGpus, charges: Mapping[str, Charge]) -> Iterable[tuple[CardKind, Amount]]:
    for uuid, charge in charges.items():
        gpu = cards.by_uuid.get(uuid)
        if gpu is None or not gpu.mib:
            yield CardKind(cards.model, "", _UNKNOWN_CARD), Amount(CORES, charge.cores, charge.mib)
        else:
            yield kind_of(cards, gpu), amount_of(gpu, charge)


class _Held(NamedTuple):
    namespace: str
    amounts: tuple[tuple[CardKind, Amount], ...]


class Usage:
    """Sums per namespace and kind over everything that is claimed or bound."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[CardKind, Amount]] = {}
        self._held: dict[str, dict[str, _Held]] = {}

    def add(self, uid: str, namespace: str, cards: NodeGpus, charges: Mapping[str, Charge]) -> None:
        """Sets what a pod holds on a node, claimed or bound. Replaces what it held there before."""
        self.remove(uid, cards.node)
        counted = _counted(cards, charges)
        if not counted:
            return
        held = _Held(namespace, counted)
        self._held.setdefault(uid, {})[cards.node] = held
        sums = self._sums.setdefault(namespace, {})
        for kind, amount in held.amounts:
            sums[kind] = sums.get(kind, _NOTHING) + amount

    def remove(self, uid: str, node: str) -> None:
        """The pod no longer holds anything on this node. Does nothing if it did not hold anything."""
        held = self._held.get(uid, {}).pop(node, None)
        if held is None:
            return
        if not self._held[uid]:
            del self._held[uid]
        sums = self._sums[held.namespace]
        for kind, amount in held.amounts:
            sums[kind] -= amount
            if sums[kind] == _NOTHING:
                del sums[kind]
        if not sums:
            del self._sums[held.namespace]

    def of(self, namespace: str, without: str = "") -> Mapping[CardKind, Amount]:
        """What a namespace uses of each kind, without the pod with the UID `without`."""
        sums = dict(self._sums.get(namespace, {}))
        for held in self._held.get(without, {}).values():
            for kind, amount in held.amounts if held.namespace == namespace else ():
                sums[kind] -= amount
        return {kind: amount for kind, amount in sums.items() if amount != _NOTHING}

    def cards_of(self, namespace: str) -> float:
        """How many cards a namespace uses, of all kinds."""
        sums = self._sums.get(namespace, {})
        return sum(amount.card_parts / (CORES * kind.of_mib) for kind, amount in sums.items())

    def counts(self, uid: str, namespace: str, cards: NodeGpus, charges: Mapping[str, Charge]) -> bool:
        """Whether exactly this is counted for a pod on a node."""
        held = self._held.get(uid, {}).get(cards.node)
        counted = _counted(cards, charges)
        return not counted if held is None else held == _Held(namespace, counted)

    def is_summed_right(self) -> bool:
        """Whether the sums of the namespaces match what their pods hold. Walks over all pods once, with plain
        integers."""
        sums: dict[tuple[str, CardKind], list[int]] = {}
        for nodes in self._held.values():
            for held in nodes.values():
                for kind, amount in held.amounts:
                    total = sums.setdefault((held.namespace, kind), [0, 0, 0])
                    total[0] += amount.card_parts
                    total[1] += amount.core_parts
                    total[2] += amount.mib
        known = {(name, kind): amount for name, kinds in self._sums.items() for kind, amount in kinds.items()}
        return known == {key: Amount(*total) for key, total in sums.items() if any(total)}


def _counted(cards: NodeGpus, charges: Mapping[str, Charge]) -> tuple[tuple[CardKind, Amount], ...]:
    return tuple(each for each in amounts_of(cards, charges) if each[1] != _NOTHING)


class Census:
    """Which nodes are in which pool."""

    def __init__(self) -> None:
        self._pool_of: dict[str, str] = {}
        self.nodes: dict[str, set[str]] = {}

    def put(self, cards: NodeGpus) -> None:
        self.remove(cards.node)
        self._pool_of[cards.node] = cards.pool
        self.nodes.setdefault(cards.pool, set()).add(cards.node)

    def remove(self, node: str) -> None:
        pool = self._pool_of.pop(node, None)
        if pool is not None:
            self.nodes[pool].discard(node)
            if not self.nodes[pool]:
                del self.nodes[pool]
