"""Avoids load: the card that is least busy, by measurement and by what was placed since.

A card without a fresh sample counts as busy as the pods on it asked for. No policy ever rewards load.
"""

import numpy as np

from aliquot.engine.arrays import Bools, Floats, Ranks
from aliquot.engine.block import Block
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, PolicySettings, View
from aliquot.model import CORES


class CoolestCards(GpuPolicy):
    name = "load"
    uses_load = True

    def rank(self, view: View) -> Ranks:
        return estimate(view.fleet, view.settings)


class CoolestNodes(NodePolicy):
    name = "load"
    uses_load = True

    def score(self, outcome: PolicyOutcome) -> Floats:
        """1 minus the mean load of the chosen cards."""
        busy = estimate(outcome.fleet, outcome.settings)
        chosen = [np.take_along_axis(busy, rows, axis=0) for _, rows in outcome.views]
        return np.asarray(1.0 - np.concatenate(chosen).mean(axis=0), np.float64)

    def why(self, outcome: PolicyOutcome, column: int) -> str:
        """Whether the load was measured, or is what pods asked for."""
        rows = np.concatenate([rows[:, column] for _, rows in outcome.views])
        measured = int(_is_fresh(outcome.fleet, outcome.settings)[rows, column].sum())
        busy = estimate(outcome.fleet, outcome.settings)[rows, column].mean()
        return f"its cards are {busy:.0%} busy, {measured} of {len(rows)} measured"


def estimate(fleet: Block, settings: PolicySettings) -> Floats:
    """How busy each card is now: as measured, plus what was placed too late to show in the sample."""
    measured = np.clip(fleet.load, 0.0, 1.0) + np.maximum(fleet.placed_since, 0.0)
    return np.where(_is_fresh(fleet, settings), measured, _asked(fleet))


def _is_fresh(fleet: Block, settings: PolicySettings) -> Bools:
    """NaN, a sample without a time, a time without a sample and a sample from the future are all stale."""
    return np.isfinite(fleet.load) & (np.abs(settings.now - fleet.load_at) <= settings.stale_after)


def _asked(fleet: Block) -> Floats:
    """The share of each card that pods hold, of its cores or of its memory."""
    cores = 1.0 - fleet.free_cores / CORES
    return np.maximum(cores, 1.0 - fleet.free_mib / np.maximum(fleet.mib, 1))
