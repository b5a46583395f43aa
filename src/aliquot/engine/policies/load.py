"""Away from the heat: the card that is least busy by measurement and by what was placed since.

Heat is never rewarded, in no policy.
"""

import numpy as np

from aliquot.engine.arrays import Floats, Ranks
from aliquot.engine.block import Block
from aliquot.engine.view import GpuPolicy, NodePolicy, Outcome, Settings, View

NEUTRAL = 0.5
"""What a card without a fresh sample counts as: neither hot nor cold."""


class CoolestCards(GpuPolicy):
    name = "load"

    def rank(self, view: View) -> Ranks:
        return estimate(view.fleet, view.settings)


class CoolestNodes(NodePolicy):
    name = "load"

    def score(self, outcome: Outcome) -> Floats:
        """One less the mean of the chosen cards."""
        busy = estimate(outcome.fleet, outcome.settings)
        chosen = [np.take_along_axis(busy, rows, axis=0) for _, rows in outcome.views]
        return np.asarray(1.0 - np.concatenate(chosen).mean(axis=0), np.float64)


def estimate(fleet: Block, settings: Settings) -> Floats:
    """How busy each card is now: measured, plus what was placed after the sample."""
    # written so that NaN, a sample without a time, a time without a sample and one from the future are all stale
    fresh = np.isfinite(fleet.load) & (np.abs(settings.now - fleet.load_at) <= settings.stale_after)
    busy = np.clip(np.where(fresh, fleet.load, NEUTRAL), 0.0, 1.0)
    return busy + np.where(fresh, np.maximum(fleet.placed_since, 0.0), 0.0)
