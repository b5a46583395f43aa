"""Packs: the fullest card that still has room, on the fullest node that still has room."""

from aliquot.engine.arrays import Floats, Ranks
from aliquot.engine.policies.measures import left_on_cards, left_on_nodes
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View


class BinpackCards(GpuPolicy):
    name = "binpack"

    def rank(self, view: View) -> Ranks:
        return left_on_cards(view)


class BinpackNodes(NodePolicy):
    name = "binpack"

    def score(self, outcome: PolicyOutcome) -> Floats:
        return -left_on_nodes(outcome)
