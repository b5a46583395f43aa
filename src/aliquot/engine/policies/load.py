"""Avoids load: the card that is least busy, by measurement and by what was placed since.

No policy ever rewards load.
"""

import numpy as np

from aliquot.engine.arrays import Floats, Ranks
from aliquot.engine.block import Block
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, PolicySettings, View

NEUTRAL = 0.5
"""The load of a card without a fresh sample: neither high nor low."""


class CoolestCards(GpuPolicy):
    name = "load"

    def rank(self, view: View) -> Ranks:
        return estimate(view.fleet, view.settings)


class CoolestNodes(NodePolicy):
    name = "load"

    def score(self, outcome: PolicyOutcome) -> Floats:
        """1 minus the mean load of the chosen cards."""
        busy = estimate(outcome.fleet, outcome.settings)
        chosen = [np.take_along_axis(busy, rows, axis=0) for _, rows in outcome.views]
        return np.asarray(1.0 - np.concatenate(chosen).mean(axis=0), np.float64)


def estimate(fleet: Block, settings: PolicySettings) -> Floats:
    """How busy each card is now: as measured, plus what was placed after the sample."""
    # written so that NaN, a sample without a time, a time without a sample and a sample from the future are all stale
    fresh = np.isfinite(fleet.load) & (np.abs(settings.now - fleet.load_at) <= settings.stale_after)
    busy = np.clip(np.where(fresh, fleet.load, NEUTRAL), 0.0, 1.0)
    return busy + np.where(fresh, np.maximum(fleet.placed_since, 0.0), 0.0)
