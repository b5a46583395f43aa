"""The machines of the demo: which cards they have, which dialects they serve, and who hands their cards over."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from aliquot import agent
from aliquot.dialects import Dialect
from aliquot.errors import BadConfig

MAX_AGENTS = 8
"""Each has a device manager and an agent on sockets of its own."""

_T4, _V100, _A10 = "Tesla T4", "Tesla V100-SXM2-32GB", "NVIDIA A10"
_A100_40, _A100, _H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
_WITH_AGENT = ((_T4, _T4), (_A100,), (_A10, _A10), (_V100, _V100))
_SIMULATED = ((_H100, _H100), (_V100, _V100), (_A10, _A10), (_T4, _T4), (_A10, _A10, _H100), (_A100_40, _A100_40))


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
    """Machines such that every dialect is served: those with the real agent first, and at least one for each dialect
    that the agents do not serve. Raises BadConfig for too few nodes."""
    served = agent.AgentSettings.dialects
    others = [name for name in dialects if name not in served]
    least = agents + len(others)
    count = least if nodes is None else nodes
    if count < least:
        raise BadConfig(
            f"--nodes {count}: at least {least} are needed, {agents} with the real agent (--agents) and one for each "
            f"of {', '.join(others)}"
        )
    if count > least and not others:
        raise BadConfig(f"--nodes {count}: without further dialects there are as many nodes as --agents")
    return list(_machines(agents, count, served, others))


def _machines(agents: int, count: int, served: Sequence[str], others: Sequence[str]) -> Iterator[Machine]:
    digits = len(str(count))
    names = (f"gpu-{number:0{digits}}" for number in range(1, count + 1))
    for name, models in zip(islice(names, agents), cycle(_WITH_AGENT), strict=False):
        yield Machine(name, models, served, has_agent=True)
    for name, models, dialect in zip(names, cycle(_SIMULATED), cycle(others), strict=False):
        yield Machine(name, models, (dialect,))
