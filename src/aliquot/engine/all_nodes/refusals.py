"""Why a request does not fit on a node: the most specific reason, for all nodes at once."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.all_nodes.plan import Plan, plan
from aliquot.engine.all_nodes.question import Question
from aliquot.engine.all_nodes.room import Need, Room, need_of, wanted_cards, wanted_models
from aliquot.engine.arrays import Bools
from aliquot.model import CORES, Reason, Topology

Numbers = NDArray[np.int8]

FITS = -1
NUMBERED = tuple(Reason)
_NUMBERS = {reason: number for number, reason in enumerate(NUMBERED)}


@dataclass(frozen=True)
class Refusals:
    """`wrong_pools` are the columns and `over_quota` the cards that the namespace's quota refuses. `unnamed` are those
    of the cards whose model the quota does not name. `unpromised` are the columns where another device plugin may
    choose a card that the pod does not want."""

    question: Question
    plan: Plan
    wrong_pools: Bools | None = None
    over_quota: Bools | None = None
    unnamed: Bools | None = None
    unpromised: Bools | None = None

    @cached_property
    def reasons(self) -> Numbers:
        """[width + 1]: per column an index into NUMBERED, or FITS; the last value is for nodes without a column. Later
        statements are more specific and overwrite earlier ones."""
        fleet, request = self.question.fleet, self.question.request
        numbers = np.full(fleet.width + 1, _NUMBERS[Reason.UNKNOWN_NODE], np.int8)
        reasons = numbers[: fleet.width]
        if self.plan.fits.all():
            reasons[:] = FITS
            return numbers
        reasons[:] = _NUMBERS[Reason.NO_CARD_FITS]
        # where another agent chooses the cards, its choice decides what fits
        choice = self.question.choice if request.allocator else None
        # no reason has to be searched where the pod fits, or where the result is unknown
        among = ~(self.plan.fits | self.plan.limited)
        open_question = replace(self.question, choice=choice, among=among, topology=Topology.ANY)
        empty_question = replace(open_question, room=Room.empty(fleet))
        if self.question.topology is not Topology.ANY:
            connected = plan(replace(empty_question, topology=self.question.topology))
            never = ~(connected.fits | connected.limited)
            reasons[plan(open_question).fits | never] = _NUMBERS[Reason.NO_TOPOLOGY]
        useful = self._useful
        needs = [need_of(fleet, container.part) for container in request.containers]
        for need in needs:
            reasons[~(useful & self._modes_meet(need)).any(axis=0)] = _NUMBERS[Reason.WRONG_MODE]
        empty = plan(empty_question)
        reasons[~(empty.fits | empty.limited)] = _NUMBERS[Reason.TOO_LARGE]
        for need in needs:
            reasons[~(useful & self._mode_allows(need)).any(axis=0)] = _NUMBERS[Reason.WRONG_MODE]
        self._blame_cards(reasons)
        if self.unpromised is not None:
            reasons[self.unpromised] = _NUMBERS[Reason.NOT_PROMISED]
        if self.wrong_pools is not None:
            reasons[self.wrong_pools] = _NUMBERS[Reason.WRONG_POOL]
        serves, no_card = fleet.serves(request.dialect), ~fleet.has.any(axis=0)
        reasons[~serves] = _NUMBERS[Reason.NOT_SERVED]
        reasons[no_card] = _NUMBERS[Reason.NO_GPUS]
        reasons[no_card & (fleet.rest_mib > 0) & serves] = _NUMBERS[Reason.TOO_LARGE]
        reasons[self.plan.limited] = _NUMBERS[Reason.SEARCH_LIMIT]
        reasons[self.plan.fits] = FITS
        return numbers

    @property
    def _useful(self) -> Bools:
        useful, allowed = self.question.fleet.sellable, self.question.allowed
        return useful if allowed is None else useful & allowed

    def _modes_meet(self, need: Need) -> Bools:
        """Cards that no pod shares in another mode."""
        fleet = self.question.fleet
        return np.asarray((fleet.used_slots if need.is_share else fleet.shares) == 0)

    def _mode_allows(self, need: Need) -> Bools:
        fleet = self.question.fleet
        if not need.is_share:
            return fleet.for_slots
        if need.whole:
            return fleet.for_whole
        if need.never_whole:
            return fleet.for_shared
        as_whole = (need.mib == fleet.mib) & (need.cores == CORES)
        return np.asarray(fleet.for_shared | (fleet.for_whole & as_whole))

    def _blame_cards(self, reasons: Numbers) -> None:
        """Nodes without any card get their reason later."""
        fleet, request = self.question.fleet, self.question.request
        models, cards = wanted_models(fleet, request), wanted_cards(fleet, request)
        of_model = fleet.has if models is None else fleet.has & models
        granted = of_model if self.over_quota is None else of_model & ~self.over_quota
        allowed = granted if cards is None else granted & cards
        reasons[~(allowed & fleet.sellable).any(axis=0)] = _NUMBERS[Reason.NOT_SELLABLE]
        if cards is not None:
            reasons[~allowed.any(axis=0)] = _NUMBERS[Reason.WRONG_CARD]
        if self.over_quota is not None:
            reasons[~granted.any(axis=0)] = _NUMBERS[Reason.OVER_QUOTA]
        if self.unnamed is not None:
            reasons[~(of_model & ~self.unnamed).any(axis=0)] = _NUMBERS[Reason.NOT_IN_QUOTA]
        if models is not None:
            reasons[~of_model.any(axis=0)] = _NUMBERS[Reason.WRONG_MODEL]
