"""The raters of elastic-gpu's scheduler 0.1: each card on its own, from 0 to 10. A node has the score of its best
card."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from aliquot.engine.arrays import Floats, Ints, Ranks
from aliquot.engine.policies.random import lots_of_cards
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View
from aliquot.model import CORES


class _FirstCards(GpuPolicy):
    def rank(self, view: View) -> Ranks:
        return -self.rate(view)

    @staticmethod
    @abstractmethod
    def rate(view: View) -> Ints:
        """The rating of each card, from 0 to 10."""


class FirstBinpackCards(_FirstCards):
    name = "elastic-0.1-binpack"

    @staticmethod
    def rate(view: View) -> Ints:
        total = np.maximum(view.fleet.mib, 1)
        cores = (CORES - view.free_cores + view.need_cores) * 10 // CORES
        return (cores + (view.fleet.mib - view.free_mib + view.need_mib) * 10 // total) // 2


class FirstSpreadCards(_FirstCards):
    name = "elastic-0.1-spread"

    @staticmethod
    def rate(view: View) -> Ints:
        return (view.free_cores * 10 // CORES + view.free_mib * 10 // np.maximum(view.fleet.mib, 1)) // 2


class FirstRandomCards(_FirstCards):
    name = "elastic-0.1-random"

    @staticmethod
    def rate(view: View) -> Ints:
        """The same pod always draws the same numbers."""
        return lots_of_cards(view.fleet, view.request.uid) % 10


class _FirstNodes(NodePolicy):
    leaves_ties = True
    cards: ClassVar[type[_FirstCards]]

    def score(self, outcome: PolicyOutcome) -> Floats:
        best = [np.where(view.possible, self.cards.rate(view), 0).max(axis=0, initial=0) for view, _ in outcome.views]
        return np.asarray(np.max(best, axis=0), np.float64)


class FirstBinpackNodes(_FirstNodes):
    name = "elastic-0.1-binpack"
    cards = FirstBinpackCards


class FirstSpreadNodes(_FirstNodes):
    name = "elastic-0.1-spread"
    cards = FirstSpreadCards


class FirstRandomNodes(_FirstNodes):
    name = "elastic-0.1-random"
    cards = FirstRandomCards
