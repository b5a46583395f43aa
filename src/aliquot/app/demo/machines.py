"""The demo's machines: their cards, the dialects they serve, and whether they run the real agent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

from aliquot.dialects import Dialect
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.errors import BadConfig
from aliquot.model.links import nvlinks

MAX_AGENTS = 8
"""Each agent needs its own device manager and sockets."""

_T4, _V100, _A10 = "Tesla T4", "Tesla V100-SXM2-32GB", "NVIDIA A10"
_A100_40, _A100, _H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
_TWICE = "gpushare"
"""The dialect with two machines: a pod of it can choose."""
_CUT = ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")


@dataclass(frozen=True)
class Machine:
    """`mig` says by index which cards are cut, and into instances of which profiles."""

    name: str
    models: Sequence[str]
    dialects: Sequence[str]
    has_agent: bool = False
    mig: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @property
    def has_nvlinks(self) -> bool:
        gpus = SimulatedGpus(self.name, self.models).read().gpus
        return any(nvlinks(link.score) for gpu in gpus for link in gpu.links)

    @property
    def hand_over(self) -> str:
        return "real agent" if self.has_agent else "simulated hand-over"


@dataclass(frozen=True)
class _Cards:
    models: Sequence[str]
    mig: Mapping[int, Sequence[str]] = field(default_factory=dict)


_FIRST = (_Cards((_T4, _T4)), _Cards((_A100,)))
"""The machines of the dialect that has two."""
_OTHERS = (
    _Cards((_H100, _H100, _H100, _H100)),
    _Cards((_V100, _V100)),
    _Cards((_A10, _A10)),
    _Cards((_T4, _T4)),
    _Cards((_A10, _A10, _H100), {2: _CUT}),
    _Cards((_A100_40, _A100_40)),
)


def plan(dialects: Mapping[str, Dialect], agents: int = MAX_AGENTS, nodes: int | None = None) -> list[Machine]:
    """Machines that together serve every dialect, the first of them with the real agent. Raises BadConfig if `nodes`
    does not allow that."""
    others = [name for name in dialects if name != _TWICE]
    least = len(_FIRST) + len(others)
    count = least if nodes is None else nodes
    if count < least:
        raise BadConfig(
            f"--nodes {count}: the demo needs at least {least}: two for {_TWICE} and one for each of "
            f"{', '.join(others)}"
        )
    digits = len(str(count))
    served = [*([_TWICE] * len(_FIRST)), *islice(cycle(others), count - len(_FIRST))]
    cards = [*_FIRST, *islice(cycle(_OTHERS), count - len(_FIRST))]
    return [
        Machine(f"gpu-{number:0{digits}}", own.models, (dialect,), number <= agents, own.mig)
        for number, (dialect, own) in enumerate(zip(served, cards, strict=True), start=1)
    ]
