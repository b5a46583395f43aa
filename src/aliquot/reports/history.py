"""How busy pods and cards were, as far as the server or Prometheus knows."""

from collections.abc import Callable

from aliquot.clock import rfc3339
from aliquot.control.inputs.past_load import SourcedHistory
from aliquot.model import Pod
from aliquot.reports.report import Report
from aliquot.reports.view import ClusterView


class HistorySample(Report, frozen=True, kw_only=True):
    """`cores` are cards; None if they were not measured."""

    at: str
    cores: float | None
    memory_bytes: int


class PastReport(Report, frozen=True, kw_only=True):
    """The history of a pod, or of a card."""

    namespace: str = ""
    name: str = ""
    node: str = ""
    uuid: str = ""
    since: str
    idle_since: str = ""
    source: str = "memory"
    """`memory` or `prometheus`."""
    samples: list[HistorySample]


class HistoryReport(Report, frozen=True, kw_only=True):
    histories: list[PastReport]
    note: str = ""
    """What is missing here."""


def pods_in_order(view: ClusterView, has_past: Callable[[str], bool], namespace: str = "") -> list[Pod]:
    """The pods of a namespace, or all, that have a history by their UID."""
    shown = (pod for pod in view.pods.values() if namespace in ("", pod.metadata.namespace))
    return sorted((pod for pod in shown if has_past(pod.metadata.uid)), key=lambda pod: pod.key)


def pod_history(pod: Pod, past: SourcedHistory) -> PastReport:
    return _past(past, namespace=pod.metadata.namespace, name=pod.metadata.name, node=pod.spec.node_name)


def card_history(node: str, uuid: str, past: SourcedHistory) -> PastReport:
    return _past(past, node=node, uuid=uuid)


def _past(past: SourcedHistory, **whose: str) -> PastReport:
    history = past.history
    samples = [
        HistorySample(at=_time(sample.at), cores=sample.cores, memory_bytes=sample.memory_bytes)
        for sample in history.samples
    ]
    idle = "" if history.idle_since is None else _time(history.idle_since)
    return PastReport(since=_time(history.start), idle_since=idle, source=past.source, samples=samples, **whose)


def _time(seconds: float) -> str:
    return rfc3339(int(seconds * 1e9))
