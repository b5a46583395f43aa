"""Why a request does not fit on a node: the most telling reason, for every node at once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from aliquot.engine.plan import Plan, Question, plan
from aliquot.engine.room import Need, Room, need_of, wanted_cards, wanted_models
from aliquot.engine.view import Bools
from aliquot.model import CORES, Reason, Topology


@dataclass(frozen=True)
class Refusing:
    """`vetoes` are columns, `banned_models` models of cards that something else than room speaks against."""

    question: Question
    plan: Plan
    vetoes: Mapping[int, Reason]
    banned_models: Mapping[str, Reason]

    @cached_property
    def reasons(self) -> list[Reason | None]:
        """Per column, None where the request fits. Later lines tell more than earlier ones and win."""
        fleet, request = self.question.fleet, self.question.request
        reasons = np.full(fleet.width, Reason.NO_CARD_FITS, object)
        open_question = replace(self.question, topology=Topology.ANY, choice=None)
        empty_question = replace(open_question, room=Room.empty(fleet))
        if self.question.topology is not Topology.ANY:
            connected = plan(replace(empty_question, topology=self.question.topology)).fits
            reasons[plan(open_question).fits | ~connected] = Reason.NO_TOPOLOGY
        useful = self._useful
        needs = [need_of(fleet, container.part) for container in request.containers]
        for need in needs:
            reasons[~(useful & self._modes_meet(need)).any(axis=0)] = Reason.WRONG_MODE
        reasons[~plan(empty_question).fits] = Reason.TOO_LARGE
        for need in needs:
            reasons[~(useful & self._mode_allows(need)).any(axis=0)] = Reason.WRONG_MODE
        self._blame_cards(reasons)
        for column, reason in self.vetoes.items():
            reasons[column] = reason
        reasons[~fleet.serves(request.dialect)] = Reason.NOT_SERVED
        reasons[~fleet.has.any(axis=0)] = Reason.NO_GPUS
        reasons[self.plan.limited] = Reason.SEARCH_LIMIT
        reasons[self.plan.fits] = None
        found: list[Reason | None] = reasons.tolist()
        return found

    @property
    def _useful(self) -> Bools:
        useful, allowed = self.question.fleet.sellable, self.question.allowed
        return useful if allowed is None else useful & allowed

    def _modes_meet(self, need: Need) -> Bools:
        """Cards on which nobody shares in another way."""
        fleet = self.question.fleet
        return np.asarray(fleet.free_slots == fleet.slots if need.is_share else fleet.shares == 0)

    def _mode_allows(self, need: Need) -> Bools:
        fleet = self.question.fleet
        if not need.is_share:
            return fleet.for_slots & (fleet.slots > 0)
        if need.whole:
            return fleet.for_whole
        as_whole = (need.mib == fleet.mib) & (need.cores == CORES)
        return np.asarray(fleet.for_shared | (fleet.for_whole & as_whole))

    def _blame_cards(self, reasons: np.ndarray[tuple[int], np.dtype[np.object_]]) -> None:
        fleet, request = self.question.fleet, self.question.request
        models, cards = wanted_models(fleet, request), wanted_cards(fleet, request)
        of_model = fleet.has if models is None else fleet.has & models
        unbanned = of_model
        if self.banned_models:
            banned = np.array([*(name in self.banned_models for name in fleet.models), False])[fleet.model_id]
            unbanned = of_model & ~banned
        wished = unbanned if cards is None else unbanned & cards
        reasons[~(wished & fleet.sellable).any(axis=0)] = Reason.NOT_SELLABLE
        reasons[~wished.any(axis=0)] = Reason.WRONG_CARD
        for column in np.flatnonzero(of_model.any(axis=0) & ~unbanned.any(axis=0)).tolist():
            row = int(of_model[:, column].argmax())
            reasons[column] = self.banned_models[fleet.models[fleet.model_id[row, column]]]
        reasons[~of_model.any(axis=0)] = Reason.WRONG_MODEL
