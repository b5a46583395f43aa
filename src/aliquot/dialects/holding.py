"""What a pod asks for, and what it holds: the values that reading a pod returns."""

from collections.abc import Mapping
from dataclasses import dataclass

from aliquot.dialects.protocol import Dialect
from aliquot.model import Charge, Placement, Request


@dataclass(frozen=True, slots=True)
class Demand:
    """A pod's request and its dialect."""

    dialect: Dialect
    request: Request

    @property
    def policies(self) -> tuple[str, str]:
        """GPU policy and node policy: the pod's constraint, else the dialect's default."""
        constraints, dialect = self.request.constraints, self.dialect
        return constraints.gpu_policy or dialect.gpu_policy, constraints.node_policy or dialect.node_policy


@dataclass(frozen=True, slots=True)
class Holding:
    """What a bound pod holds of its node's cards.

    If nothing tells which card that is, `doubt` says why, and the pod is charged on every card that it may have: none
    of them may be sold again. `unnamed` is the number of whole cards from kubelet that no record names; they are not
    charged here. `request` is what the placement was cut for.
    """

    placement: Placement
    charges: Mapping[str, Charge]
    doubt: str = ""
    unnamed: int = 0
    request: Request | None = None
