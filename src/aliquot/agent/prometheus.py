"""Prometheus' text format. The library for that would take 2 MB of the agent's memory."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aliquot.prometheus_labels import escaped

SeriesValue = tuple[Mapping[str, str], float | None]
"""The labels of a series, which is left out if its value is unknown."""


@dataclass(frozen=True)
class Metric:
    name: str
    kind: str
    help: str


def lines(metric: Metric, samples: Iterable[SeriesValue]) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}\n"
    yield f"# TYPE {metric.name} {metric.kind}\n"
    for labels, value in samples:
        if value is not None:
            pairs = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())
            yield f"{metric.name}{{{pairs}}} {value}\n" if pairs else f"{metric.name} {value}\n"
