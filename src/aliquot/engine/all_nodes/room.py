"""What is free, what a part needs and which cards can take it: the rule of `obstacles` on whole arrays."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from aliquot.engine.arrays import Bools, Ints
from aliquot.engine.block import Block
from aliquot.model import CORES, Life, Part, Request, Unit

_MAX = 1 << 60
_MAX_FACTOR = 1 << 20
"""Larger amounts fit nowhere; these keep the arithmetic in 64 bits."""


@dataclass(frozen=True)
class Room:
    """What is left of every card, and which cards take which kind of part."""

    free_mib: Ints
    free_cores: Ints
    free_slots: Ints
    open_shared: Bools
    open_whole: Bools
    open_slots: Bools
    untouched: bool = True
    """Nothing was taken since it was asked for: `open_whole` tells all about whole cards."""

    @classmethod
    def now(cls, fleet: Block) -> "Room":
        return cls(
            fleet.free_mib, fleet.free_cores, fleet.free_slots, fleet.open_shared, fleet.open_whole, fleet.open_slots
        )

    @classmethod
    def empty(cls, fleet: Block) -> "Room":
        """As if nobody held anything."""
        cores = np.where(fleet.has, CORES, 0)
        return cls(fleet.mib, cores, fleet.slots, fleet.for_shared, fleet.for_whole, fleet.for_slots)

    def less(self, mib: Ints, cores: Ints, slots: Ints) -> "Room":
        """With this much taken of each card, by the same pod: it does not close a card to itself."""
        return replace(
            self,
            free_mib=self.free_mib - mib,
            free_cores=self.free_cores - cores,
            free_slots=self.free_slots - slots,
            untouched=False,
        )


@dataclass(frozen=True)
class Need:
    """What one card's part costs on each card; arrays broadcast to the Fleet's."""

    mib: Ints
    cores: Ints
    slots: int
    whole: bool

    @property
    def is_share(self) -> bool:
        return not self.slots


def need_of(fleet: Block, part: Part) -> Need:
    if part.whole:
        return Need(fleet.card_mib, np.asarray(CORES), 0, whole=True)
    slots = min(part.slots, _MAX_FACTOR)
    cores = np.asarray(min(part.cores, _MAX))
    if slots and not part.cores:
        cores = slots * CORES // np.maximum(1, fleet.slots)
    return Need(_mib(fleet, part), cores, slots, whole=False)


def _mib(fleet: Block, part: Part) -> Ints:
    amount = part.memory.amount
    match part.memory.unit:
        case Unit.MIB:
            return np.asarray(min(amount, _MAX))
        case Unit.NODE:
            return np.asarray(min(amount, _MAX >> 20) * fleet.unit_mib)
        case Unit.PERCENT:
            return np.asarray(min(amount, _MAX_FACTOR) * fleet.card_mib // 100)
        case Unit.SLOT:
            per_slot = min(amount, _MAX_FACTOR) * fleet.mib // np.maximum(1, fleet.slots)
            return np.where(fleet.slots > 0, per_slot, fleet.mib + 1)


def together(needs: Iterable[tuple[Life, Need]]) -> Need:
    """What containers that share their cards need of each: init containers as max, the rest as sum."""
    main = sidecars = init = (np.asarray(0), np.asarray(0), 0)
    kinds = set()
    for life, need in needs:
        kinds.add(need.is_share)
        size = (need.mib, need.cores, need.slots)
        if life is Life.SIDECAR:
            sidecars = _plus(sidecars, size)
        elif life is Life.INIT:
            init = _most(init, _plus(sidecars, size))
        else:
            main = _plus(main, size)
    mib, cores, slots = _most(_plus(main, sidecars), init)
    if len(kinds) > 1:
        mib = np.asarray(_MAX)  # a card is shared in one way at a time
    return Need(mib, cores, slots, whole=False)  # what is as large as a card is treated as one anyway


_Size: TypeAlias = tuple[Ints, Ints, int]


def _plus(one: _Size, other: _Size) -> _Size:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _most(one: _Size, other: _Size) -> _Size:
    return np.maximum(one[0], other[0]), np.maximum(one[1], other[1]), max(one[2], other[2])


def takes(fleet: Block, room: Room, need: Need) -> Bools:
    """[rows, width]: cards that have room for the part, whoever asks."""
    if need.whole and room.untouched:
        return room.open_whole.copy()
    fits = np.greater_equal(room.free_mib, need.mib)
    if need.cores.ndim or need.cores > 0:
        fits &= np.greater_equal(room.free_cores, need.cores)
    if need.whole:
        fits &= room.open_whole
    elif need.is_share:
        if need.cores.ndim or need.cores == CORES:
            # a part as large as the card is the card, whatever it is called
            as_whole = fits & room.open_whole & (need.mib == fleet.mib) & (need.cores == CORES)
            fits &= room.open_shared
            fits |= as_whole
        else:
            fits &= room.open_shared
    else:
        fits &= room.open_slots
        fits &= room.free_slots >= need.slots
    return fits


def wanted(fleet: Block, request: Request, banned: Bools | None = None) -> Bools | None:
    """[rows, width]: cards that the pod's wishes allow, without the `banned` ones; None if all of them are."""
    allowed = None if banned is None else ~banned
    for mask in (wanted_models(fleet, request), wanted_cards(fleet, request)):
        if mask is not None:
            allowed = mask if allowed is None else allowed & mask
    return allowed


def wanted_models(fleet: Block, request: Request) -> Bools | None:
    if not request.constraints.models:
        return None
    allows = [request.constraints.allows_model(name) for name in fleet.models]
    return np.array([*allows, False], np.bool_)[fleet.model_id]


def wanted_cards(fleet: Block, request: Request) -> Bools | None:
    constraints = request.constraints
    allowed: Bools | None = None
    if constraints.mig or len(fleet.profiles) > 1:
        allowed = np.array([constraints.allows_instance(profile) for profile in fleet.profiles], np.bool_)[
            fleet.profile_id
        ]
    if constraints.only_uuids is not None:
        only = _cards(fleet, constraints.only_uuids)
        allowed = only if allowed is None else allowed & only
    if constraints.not_uuids:
        others = ~_cards(fleet, constraints.not_uuids)
        allowed = others if allowed is None else allowed & others
    return allowed


def _cards(fleet: Block, uuids: Iterable[str]) -> Bools:
    mask = np.zeros(fleet.has.shape, np.bool_)
    for uuid in uuids:
        for place in fleet.places_of(uuid):
            mask[place] = True
    return mask
