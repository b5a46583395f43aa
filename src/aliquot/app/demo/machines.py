"""The demo's machines: their cards, the dialects they serve, and whether they run the real agent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from aliquot.dialects import Dialect
from aliquot.errors import BadConfig

MAX_AGENTS = 8
"""Each agent needs its own device manager and sockets."""

_T4, _V100, _A10 = "Tesla T4", "Tesla V100-SXM2-32GB", "NVIDIA A10"
_A100_40, _A100, _H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
_WITH_AGENT = ((_T4, _T4), (_A100,), (_A10, _A10), (_V100, _V100))
_SIMULATED = ((_H100, _H100), (_V100, _V100), (_A10, _A10), (_T4, _T4), (_A10, _A10, _H100), (_A100_40, _A100_40))

_SERVED_BY_AGENTS = ("gpushare",)
"""What the machines with the real agent serve."""


@dataclass(frozen=True)
class Machine:
    name: str
    models: Sequence[str]
    dialects: Sequence[str]
    has_agent: bool = False

    @property
    def hand_over(self) -> str:
        return "real agent" if self.has_agent else "simulated hand-over"


def plan(dialects: Mapping[str, Dialect], agents: int = 2, nodes: int | None = None) -> list[Machine]:
    """Machines that together serve every dialect: first those with the real agent, then at least one for each other
    dialect. Raises BadConfig if `nodes` does not allow that."""
    served = _SERVED_BY_AGENTS
    others = [name for name in dialects if name not in served]
    least = agents + len(others)
    count = least if nodes is None else nodes
    if count < least:
        raise BadConfig(
            f"--nodes {count}: the demo needs at least {least}: {agents} with the real agent (--agents) and one for "
            f"each of {', '.join(others)}"
        )
    if count > least and not others:
        raise BadConfig(f"--nodes {count}: there are no further dialects to serve, so --nodes must equal --agents")
    return list(_machines(agents, count, served, others))


def _machines(agents: int, count: int, served: Sequence[str], others: Sequence[str]) -> Iterator[Machine]:
    digits = len(str(count))
    names = (f"gpu-{number:0{digits}}" for number in range(1, count + 1))
    for name, models in zip(islice(names, agents), cycle(_WITH_AGENT), strict=False):
        yield Machine(name, models, served, has_agent=True)
    for name, models, dialect in zip(names, cycle(_SIMULATED), cycle(others), strict=False):
        yield Machine(name, models, (dialect,))
