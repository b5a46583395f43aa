"""Spreads: the emptiest card on the emptiest node."""

from aliquot.engine.arrays import Floats, Ranks
from aliquot.engine.policies.measures import left_on_cards, left_on_nodes
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View


class SpreadCards(GpuPolicy):
    name = "spread"

    def rank(self, view: View) -> Ranks:
        return -left_on_cards(view)


class SpreadNodes(NodePolicy):
    name = "spread"

    def score(self, outcome: PolicyOutcome) -> Floats:
        return left_on_nodes(outcome)
