"""KETI GPU-Scheduler's scores: three stages for a card, four for a node, and how they combine.

Every stage is divided by the number of stages and rounded before the sum, so a card reaches 99 and a node 100. The card
stages are policies on the Fleet. The node stages need CPU, memory and storage, which only a scheduler of pods knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aliquot.engine.arrays import Floats, Ints, Ranks
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View

CARD_STAGES = 3
NODE_STAGES = 4


class KetiCards(GpuPolicy):
    name = "keti"

    def rank(self, view: View) -> Ranks:
        return -_on_view(view)


class KetiNodes(NodePolicy):
    """The cards' half of a node's total."""

    name = "keti"

    def score(self, outcome: PolicyOutcome) -> Floats:
        chosen = [np.take_along_axis(_on_view(view), rows, axis=0) for view, rows in outcome.views]
        return node_card_scores(np.concatenate(chosen))


def _on_view(view: View) -> Ints:
    fleet = view.fleet
    return card_scores(view.free_mib, fleet.mib, fleet.largest_mib, fleet.shares + fleet.used_slots)


def card_scores(free: Ints, total: Ints, largest: int, pods: Ints) -> Ints:
    """More free memory, absolute (relative to the largest card of the cluster) and relative to the card, and fewer
    pods."""
    usage = _rounded(free * 100.0 / max(1, largest) / CARD_STAGES)
    utilization = _rounded(free * 100.0 / np.maximum(total, 1) / CARD_STAGES)
    least_pods = 100 - 10 * pods
    scores = usage + utilization + np.trunc(least_pods / CARD_STAGES)
    return np.where(least_pods < 0, 0, scores).astype(np.int64)


def node_card_scores(chosen: Ints) -> Floats:
    """The score of each node, [width], from the scores of its chosen cards, [cards, width]."""
    return _rounded(chosen.mean(axis=0))


def _rounded(values: Floats) -> Floats:
    """Rounds halves up; nothing here is negative."""
    return np.asarray(np.floor(values + 0.5), np.float64)


@dataclass(frozen=True, slots=True)
class Size:
    """What a pod asks of a node, or what a node has for pods, besides GPUs."""

    cpu_milli: int
    memory: int
    storage: int

    def measures(self) -> tuple[int, int, int]:
        return self.cpu_milli, self.memory, self.storage


def node_score(asked: Size, has: Size, affinity: Sequence[int] = (), avoided: bool = False) -> int:
    """`affinity` are the weights of the preferred terms that match. `avoided`: the pod does not tolerate a
    PreferNoSchedule taint."""
    mean_weight = sum(affinity) / len(affinity) if affinity else 0.0
    stages = (_least_requested(asked, has), _balanced(asked, has), mean_weight, 0.0 if avoided else 100.0)
    return sum(_round(stage / NODE_STAGES) for stage in stages)


def _least_requested(asked: Size, has: Size) -> float:
    pairs = list(zip(asked.measures(), has.measures(), strict=True))
    if any(not total or total < wanted for wanted, total in pairs):
        return 0.0
    return sum((total - wanted) / total * weight for (wanted, total), weight in zip(pairs, (40, 40, 20), strict=True))


def _balanced(asked: Size, has: Size) -> float:
    shares = [wanted / total if total else 1.0 for wanted, total in zip(asked.measures(), has.measures(), strict=True)]
    if max(shares) >= 1:
        return 0.0
    mean = sum(shares) / len(shares)
    return (1 - sum((share - mean) ** 2 for share in shares) / len(shares)) * 100


def total(node: int, card: int, node_weight: float, card_weight: float) -> int:
    return _round(node * node_weight + card * card_weight)


def _round(value: float) -> int:
    return int(_rounded(np.asarray(value)))
