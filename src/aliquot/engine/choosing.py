"""Policies by name, alone or one after another, and the cards that ranks choose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from aliquot.engine.state import NodeState
from aliquot.engine.view import Bools, Floats, GpuPolicy, Ints, NodePolicy, Outcome, Ranks, Settings, View
from aliquot.errors import BadDemand
from aliquot.model import Gpu, Request

_Policy = TypeVar("_Policy", GpuPolicy, NodePolicy)

_LAST = np.iinfo(np.int64).max


def policy(table: Mapping[str, _Policy], names: str, field: str = "policy") -> tuple[_Policy, ...]:
    """The policies of `topology,binpack`: where the first sees no difference, the next decides. `field` is where the
    names stand. Raises BadDemand."""
    found = []
    for name in names.split(","):
        if (known := table.get(name.strip())) is None:
            raise BadDemand(f"{field}: {name.strip()[:64]!r} is no policy; there are {', '.join(sorted(table))}")
        found.append(known)
    return tuple(found)


@dataclass(frozen=True)
class CardChoice:
    """GPU policies, the first of them first."""

    policies: Sequence[GpuPolicy]

    def rank(self, view: View) -> Ranks:
        ranks = [each.rank(view) for each in self.policies]
        return ranks[0] if len(ranks) == 1 else _one_after_another(ranks, view.possible.shape)

    @property
    def arranges(self) -> bool:
        """Whether a policy places whole pods in its own way."""
        return any(type(each).arrange is not GpuPolicy.arrange for each in self.policies)

    def arrange(self, state: NodeState, request: Request, settings: Settings) -> Mapping[str, tuple[Gpu, ...]] | None:
        for each in self.policies:
            if (cards := each.arrange(state, request, settings)) is not None:
                return cards
        return None


def score(policies: Sequence[NodePolicy], outcome: Outcome) -> Floats:
    scores = [each.score(outcome) for each in policies]
    if len(scores) == 1:
        return scores[0]
    return _one_after_another(scores, outcome.fits.shape).astype(np.float64)


def _one_after_another(numbers: Sequence[Ranks], shape: tuple[int, ...]) -> Ints:
    """One number that compares as the tuple of all would."""
    combined = np.zeros(shape, np.int64)
    for each in numbers:
        distinct, places = np.unique(np.broadcast_to(each, shape), return_inverse=True)
        combined = combined * len(distinct) + places.reshape(shape)
        # dense again, so that the next one has room
        combined = np.unique(combined, return_inverse=True)[1].reshape(shape)
    return combined


def masked(possible: Bools, ranks: Ranks) -> Ranks:
    """Ranks in which cards that are not possible come last."""
    return np.where(possible, ranks, _LAST if ranks.dtype.kind in "iu" else np.inf)


def lowest(keys: Ranks, count: int) -> Ints:
    """[count, width]: the rows of the lowest keys of each column, equal ones from the top."""
    if count == 1:
        return np.asarray(keys.argmin(axis=0)[np.newaxis])
    return np.asarray(np.argsort(keys.T, axis=1, kind="stable")[:, :count].T)
