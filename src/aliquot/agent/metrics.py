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
METRICS = (HEALTHY, CORDONED, XID_ERRORS)

_Sample = tuple[Mapping[str, str], int]


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
            *_lines(XID_ERRORS, errors),
        ]
        return "".join(f"{line}\n" for line in lines)


def _lines(metric: Metric, samples: Iterable[_Sample]) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in samples:
        pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{metric.name}{{{pairs}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
