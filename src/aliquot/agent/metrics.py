"""Every metric of an agent, in Prometheus' text format. The library for that would take 2 MB of the agent's memory."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aliquot.agent.card_health import CardState
from aliquot.agent.devices import CardError
from aliquot.model.bounds import LARGEST_XID


@dataclass(frozen=True)
class Metric:
    name: str
    kind: str
    help: str


HEALTHY = Metric("aliquot_card_healthy", "gauge", "1 while containers may start on a card.")
CORDONED = Metric("aliquot_card_cordoned", "gauge", "1 while a card takes no new pods, by an XID error or by hand.")
XID_ERRORS = Metric("aliquot_xid_errors_total", "counter", "XID errors of a card since the agent started.")
CORES_BUSY = Metric("aliquot_card_cores_busy_ratio", "gauge", "The part of the time in which a program ran on a card.")
MEMORY_USED = Metric(
    "aliquot_card_memory_used_bytes", "gauge", "Memory of a card in use, with what its driver keeps for itself."
)
TEMPERATURE = Metric("aliquot_card_temperature_celsius", "gauge", "Temperature of a card.")
POWER = Metric("aliquot_card_power_watts", "gauge", "Power that a card draws.")
METRICS = (HEALTHY, CORDONED, CORES_BUSY, MEMORY_USED, TEMPERATURE, POWER, XID_ERRORS)

_Sample = tuple[Mapping[str, str], float | None]
"""The labels of a series, which is left out if its value is unknown."""


class AgentMetrics:
    def __init__(self) -> None:
        self.cards: Sequence[CardState] = ()
        self._xids: Counter[tuple[str, str]] = Counter()

    def count_xid(self, error: CardError) -> None:
        self._xids[error.uuid, str(error.code) if 0 < error.code <= LARGEST_XID else "other"] += 1

    def text(self) -> str:
        cards = [
            ({"uuid": state.gpu.uuid, "index": str(state.gpu.index), "model": state.gpu.model}, state)
            for state in self.cards
        ]
        errors = (({"uuid": uuid, "xid": xid}, count) for (uuid, xid), count in sorted(self._xids.items()))
        lines = [
            *_lines(HEALTHY, ((labels, int(not state.fault)) for labels, state in cards)),
            *_lines(CORDONED, ((labels, int(bool(state.cordon))) for labels, state in cards)),
            *_lines(CORES_BUSY, ((labels, state.usage.cores) for labels, state in cards)),
            *_lines(MEMORY_USED, ((labels, state.usage.memory_bytes) for labels, state in cards)),
            *_lines(TEMPERATURE, ((labels, state.usage.celsius) for labels, state in cards)),
            *_lines(POWER, ((labels, state.usage.watts) for labels, state in cards)),
            *_lines(XID_ERRORS, errors),
        ]
        return "".join(f"{line}\n" for line in lines)


def _lines(metric: Metric, samples: Iterable[_Sample]) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in samples:
        if value is not None:
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{metric.name}{{{pairs}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
