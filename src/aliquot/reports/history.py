"""How busy pods and cards were: what the server has kept since it saw the first sample."""

from collections.abc import Callable

from aliquot.clock import rfc3339
from aliquot.control.inputs.load_history import History
from aliquot.model import Pod
from aliquot.reports.report import Report
from aliquot.reports.view import ClusterView


class Sample(Report, frozen=True, kw_only=True):
    """`cores` are cards; None if nobody measured them."""

    at: str
    cores: float | None
    memory_bytes: int


class Past(Report, frozen=True, kw_only=True):
    """The history of a pod, or of a card."""

    namespace: str = ""
    name: str = ""
    node: str = ""
    uuid: str = ""
    since: str
    idle_since: str = ""
    samples: list[Sample]


class HistoryReport(Report, frozen=True, kw_only=True):
    histories: list[Past]
    note: str = ""
    """What is missing here."""


def pods_in_order(view: ClusterView, has_past: Callable[[str], bool], namespace: str = "") -> list[Pod]:
    """The pods of a namespace, or all, that have a history by their UID."""
    shown = (pod for pod in view.pods.values() if namespace in ("", pod.metadata.namespace))
    return sorted((pod for pod in shown if has_past(pod.metadata.uid)), key=lambda pod: pod.key)


def pod_history(pod: Pod, past: Callable[[str], History | None]) -> Past | None:
    """`past` finds a history by UID. None if there is none any more."""
    if (history := past(pod.metadata.uid)) is None:
        return None
    return _past(history, namespace=pod.metadata.namespace, name=pod.metadata.name, node=pod.spec.node_name)


def cards_history(view: ClusterView, past: Callable[[str], History | None], node: str) -> HistoryReport:
    """Of the cards of a node. `past` finds a history by the card's UUID."""
    gpus = view.cluster.cards(node).gpus
    return HistoryReport(
        histories=[_past(history, node=node, uuid=gpu.uuid) for gpu in gpus if (history := past(gpu.uuid)) is not None]
    )


def _past(history: History, **whose: str) -> Past:
    samples = [
        Sample(at=_time(sample.at), cores=sample.cores, memory_bytes=sample.memory_bytes) for sample in history.samples
    ]
    idle = "" if history.idle_since is None else _time(history.idle_since)
    return Past(since=_time(history.start), idle_since=idle, samples=samples, **whose)


def _time(seconds: float) -> str:
    return rfc3339(int(seconds * 1e9))
