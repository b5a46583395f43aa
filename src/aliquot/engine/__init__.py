"""The engine: a decision is a pure function of the Fleet and a request."""

from aliquot.engine.fit import Judgement, judge
from aliquot.engine.fleet import Fleet

__all__ = ["Fleet", "Judgement", "judge"]
