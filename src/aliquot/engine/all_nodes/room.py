"""What is free, what a part needs and which cards can take it: the rule of `obstacles` on whole arrays."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aliquot.engine.arrays import Bools, Ints
from aliquot.engine.block import Block
from aliquot.model import CORES, Constraints, Life, Part, Request, Unit, peak, peak_by
from aliquot.model.observed import asks_for_neighbours

_MAX = 1 << 60
_MAX_FACTOR = 1 << 20
"""Larger amounts fit nowhere. These bounds keep the arithmetic in 64 bits."""


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
    """Whether nothing was taken since: then `open_whole` says everything about whole cards."""

    @classmethod
    def now(cls, fleet: Block) -> "Room":
        return cls(
            fleet.free_mib, fleet.free_cores, fleet.free_slots, fleet.open_shared, fleet.open_whole, fleet.open_slots
        )

    @classmethod
    def empty(cls, fleet: Block) -> "Room":
        """The room if no pod held anything."""
        cores = np.where(fleet.has, CORES, 0)
        return cls(fleet.mib, cores, fleet.slots, fleet.for_shared, fleet.for_whole, fleet.for_slots)

    def less(self, mib: Ints, cores: Ints, slots: Ints) -> "Room":
        """The room after the same pod took this much of each card. A pod does not close a card to itself."""
        return replace(
            self,
            free_mib=self.free_mib - mib,
            free_cores=self.free_cores - cores,
            free_slots=self.free_slots - slots,
            untouched=False,
        )


@dataclass(frozen=True)
class Need:
    """What the part costs on each card; the arrays broadcast to the Fleet's."""

    mib: Ints
    cores: Ints
    slots: int
    whole: bool

    @property
    def is_share(self) -> bool:
        return not self.slots

    @property
    def never_whole(self) -> bool:
        """Whether the part does not take all cores of any card."""
        return not self.cores.ndim and self.cores != CORES


def need_of(fleet: Block, part: Part) -> Need:
    if part.whole:
        return Need(fleet.card_mib, np.asarray(CORES), 0, whole=True)
    slots = min(part.slots, _MAX_FACTOR)
    cores = np.asarray(min(part.cores, _MAX))
    if slots and not part.cores:
        cores = slots * CORES // np.maximum(1, fleet.slots)
    return Need(_mib(fleet, part), cores, slots, whole=False)


def _mib(fleet: Block, part: Part) -> Ints:
    """Rounds as `Memory.mib` in model/request.py does; tests/unit/engine/test_agreement.py keeps the two equal."""
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


def together(needs: Sequence[tuple[Life, Need]]) -> Need:
    """The peak of what containers that share their cards need of each."""
    if len({need.is_share for _, need in needs}) > 1:
        mib = np.asarray(_MAX)  # a card is shared in one mode at a time
    else:
        mib = np.asarray(peak_by(np.maximum, ((life, need.mib) for life, need in needs)))
    cores = np.asarray(peak_by(np.maximum, ((life, need.cores) for life, need in needs)))
    slots = peak((life, need.slots) for life, need in needs)
    return Need(mib, cores, slots, whole=False)  # a part as large as the card is treated as the whole card anyway


def takes(fleet: Block, room: Room, need: Need) -> Bools:
    """[rows, width]: cards that have room for the part, whichever pod asks."""
    if need.whole and room.untouched:
        return room.open_whole.copy()
    fits = np.greater_equal(room.free_mib, need.mib)
    if need.cores.ndim or need.cores > 0:
        fits &= np.greater_equal(room.free_cores, need.cores)
    if need.whole:
        fits &= room.open_whole
    elif need.is_share and need.never_whole:
        fits &= room.open_shared
    elif need.is_share:
        # a part as large as the card counts as the whole card
        as_whole = fits & room.open_whole & (need.mib == fleet.mib) & (need.cores == CORES)
        fits &= room.open_shared
        fits |= as_whole
    else:
        fits &= room.open_slots
        fits &= room.free_slots >= need.slots
    return fits


def wanted(fleet: Block, request: Request, banned: Bools | None = None) -> Bools | None:
    """[rows, width]: cards that the pod's constraints allow, without the `banned` ones; None if all cards are
    allowed."""
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
    allowed = _instances(fleet, constraints)
    if constraints.only_uuids is not None:
        only = _cards(fleet, constraints.only_uuids)
        allowed = only if allowed is None else allowed & only
    if constraints.not_uuids:
        others = ~_cards(fleet, constraints.not_uuids)
        allowed = others if allowed is None else allowed & others
    return allowed


def _instances(fleet: Block, constraints: Constraints) -> Bools | None:
    if not constraints.mig and len(fleet.profiles) == 1:
        return None
    allows = [constraints.allows_instance(profile) for profile in fleet.profiles]
    return np.array(allows, np.bool_)[fleet.profile_id]


def unpromised(fleet: Block, request: Request) -> Bools | None:
    """[width]: observed nodes where the pod may get a card that its constraints do not allow; None if there are none.
    The rule is `can_promise` in model/observed.py."""
    constraints = request.constraints
    is_free = not constraints.models and constraints.only_uuids is None and not constraints.not_uuids
    is_apart = not asks_for_neighbours(request)
    if (is_free and is_apart) or not fleet.observed.any():
        return None
    if not is_apart:
        return fleet.observed
    instances, allowed = _instances(fleet, constraints), wanted(fleet, request)
    choices = fleet.has & ~fleet.is_cut
    if instances is not None:
        choices &= instances
    fine = choices if allowed is None else choices & allowed
    return np.asarray(fleet.observed & fine.any(axis=0) & (choices & ~fine).any(axis=0))


def _cards(fleet: Block, uuids: Iterable[str]) -> Bools:
    mask = np.zeros(fleet.has.shape, np.bool_)
    for uuid in uuids:
        for place in fleet.places_of(uuid):
            mask[place] = True
    return mask
