"""Fill up: the fullest card that still takes it, on the fullest node that still takes it."""

from aliquot.engine.arrays import Floats, Ranks
from aliquot.engine.policies.measures import left_on_cards, left_on_nodes
from aliquot.engine.view import GpuPolicy, NodePolicy, Outcome, View


class BinpackCards(GpuPolicy):
    name = "binpack"

    def rank(self, view: View) -> Ranks:
        return left_on_cards(view)


class BinpackNodes(NodePolicy):
    name = "binpack"

    def score(self, outcome: Outcome) -> Floats:
        return -left_on_nodes(outcome)
