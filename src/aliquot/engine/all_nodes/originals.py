"""Where an original would place a pod, node by node. Nodes that are alike are asked once, and only as long as the
decision can afford it."""

from collections.abc import Mapping, Sequence

import numpy as np

from aliquot.engine.all_nodes.question import Question
from aliquot.engine.block import DECISIVE
from aliquot.engine.one_node.puzzle import Cards, puzzle_of
from aliquot.engine.one_node.search import works
from aliquot.engine.state import NodeState
from aliquot.model import Gpu

_MAX_STEPS = 100_000
"""Steps per decision, see `PodPolicy.steps`."""


class Originals:
    """Remembers answers, so that the same question gets the same cards again."""

    def __init__(self, question: Question) -> None:
        self.question = question
        choice, request = question.choice, question.request
        originals = choice.originals if choice and not request.together else []
        self.policies = [policy for policy in originals if not policy.is_rank_enough(request)]
        self._left = _MAX_STEPS
        self._known: dict[bytes, Sequence[Cards] | None] = {}

    def rows_at(self, column: int) -> Sequence[Cards] | None:
        """The rows of each container. None if no original places the pod here, or if its placement does not work."""
        if not self.policies:
            return None
        key = self._key(column)
        if key not in self._known:
            self._known[key] = self._ask(column)
        return self._known[key]

    def _key(self, column: int) -> bytes:
        """Equal for nodes on which an original places the pod alike: what decides about each card, how the cards are
        connected, and which of them the pod may use."""
        fleet, allowed = self.question.fleet, self.question.allowed
        cards = [getattr(fleet, name)[:, column] for name in DECISIVE]
        cards += [] if allowed is None else [allowed[:, column]]
        return np.concatenate([*cards, fleet.unit_mib[column, None], fleet.wiring_id[column, None]]).tobytes()

    def _ask(self, column: int) -> Sequence[Cards] | None:
        state, request = self.question.fleet.state_at(column), self.question.request
        for policy in self.policies:
            steps = policy.steps(len(state.cards.gpus), request)
            if steps <= self._left:
                self._left -= steps
                if (cards := policy.arrange(state, request)) is not None:
                    return self._checked(column, state, cards)
        return None

    def _checked(self, column: int, state: NodeState, cards: Mapping[str, tuple[Gpu, ...]]) -> Sequence[Cards] | None:
        request, allowed = self.question.request, self.question.allowed
        rows = {gpu.uuid: row for row, gpu in enumerate(state.cards.gpus)}
        chosen = [tuple(rows[gpu.uuid] for gpu in cards[container.name]) for container in request.containers]
        if allowed is not None and not all(allowed[row, column] for each in chosen for row in each):
            return None
        return chosen if works(puzzle_of(state, request), chosen) else None
