"""Policies by name, alone or chained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from aliquot.engine.arrays import Floats, Ints, Ranks, joined
from aliquot.engine.view import GpuPolicy, NodePolicy, PodPolicy, PolicyOutcome, View
from aliquot.errors import BadDemand, BadInput

_Policy = TypeVar("_Policy", GpuPolicy, NodePolicy)


def policy(
    table: Mapping[str, _Policy], names: str, field: str, error: type[BadInput] = BadDemand
) -> tuple[_Policy, ...]:
    """The policies in a chain such as `topology,binpack`: where the first sees no difference, the next decides. `field`
    is where the names stand. Raises `error` for an unknown policy."""
    found = []
    for name in names.split(","):
        if (known := table.get(name.strip())) is None:
            raise error(f"{field}: {name.strip()[:64]!r} is not a policy; choose one of {', '.join(sorted(table))}")
        found.append(known)
    return tuple(found)


@dataclass(frozen=True)
class CardChoice:
    """A chain of GPU policies."""

    policies: Sequence[GpuPolicy]

    def rank(self, view: View) -> Ranks:
        ranks = [each.rank(view) for each in self.policies]
        return ranks[0] if len(ranks) == 1 else _one_after_another(ranks, view.possible.shape)

    @cached_property
    def originals(self) -> Sequence[PodPolicy]:
        """Policies that place whole pods."""
        return [each for each in self.policies if isinstance(each, PodPolicy)]


def score(policies: Sequence[NodePolicy], outcomes: Sequence[PolicyOutcome]) -> Floats:
    """The score of every column of all blocks. Of a chain, ranks among the columns that fit: what others have depends
    on what was asked before."""
    scores = [joined([_score(each, outcome) for outcome in outcomes]) for each in policies]
    if len(scores) == 1:
        return scores[0]
    fits = joined([outcome.fits for outcome in outcomes])
    ranks = np.zeros(len(fits))
    ranks[fits] = _one_after_another([each[fits] for each in scores], (int(fits.sum()),))
    return ranks


def _score(own: NodePolicy, outcome: PolicyOutcome) -> Floats:
    return own.score(outcome) if outcome.request.containers else own.score_without_gpu(outcome)


def _one_after_another(numbers: Sequence[Ranks], shape: tuple[int, ...]) -> Ints:
    """Numbers that compare as the tuples of all numbers would."""
    combined = np.zeros(shape, np.int64)
    for each in numbers:
        distinct, places = np.unique(np.broadcast_to(each, shape), return_inverse=True)
        combined = combined * len(distinct) + places.reshape(shape)
        # dense again, so that the next number has room
        combined = np.unique(combined, return_inverse=True)[1].reshape(shape)
    return combined
