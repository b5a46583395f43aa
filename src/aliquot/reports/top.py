"""How busy cards, pods and namespaces are, the busiest first."""

from collections.abc import Iterable

from aliquot.reports.nodes import nodes_report
from aliquot.reports.pods import holders_report, pods_report
from aliquot.reports.report import Report, Use
from aliquot.reports.view import ClusterView


class TopRow(Report, frozen=True, kw_only=True):
    name: tuple[str, ...]
    cards: int
    memory_mib: int
    """What a card has, or what pods hold."""
    pods: int
    use: Use
    allocated: float | None = None


class TopReport(Report, frozen=True, kw_only=True):
    of: str
    rows: list[TopRow]


def top_report(view: ClusterView, kind: str, namespace: str) -> TopReport:
    """The busiest first."""
    rows = list(_ROWS[kind](view, namespace))
    return TopReport(of=kind, rows=sorted(rows, key=lambda row: (-(row.use.cores or 0.0), row.name)))


def _cards(view: ClusterView, _: str) -> Iterable[TopRow]:
    for node in nodes_report(view).nodes:
        for card in node.cards:
            yield TopRow(
                name=(node.name, str(card.index)),
                cards=1,
                memory_mib=card.memory_mib,
                pods=len(card.pods),
                use=card.use,
                allocated=card.allocated,
            )


def _pods(view: ClusterView, namespace: str) -> Iterable[TopRow]:
    for pod in pods_report(view, namespace).pods:
        if pod.cards:
            name = (pod.namespace, pod.name)
            yield TopRow(name=name, cards=len(pod.cards), memory_mib=pod.memory_mib, pods=1, use=pod.use)


def _namespaces(view: ClusterView, _: str) -> Iterable[TopRow]:
    for holder in holders_report(pods_report(view), "namespace").holders:
        yield TopRow(
            name=(holder.name,), cards=holder.cards, memory_mib=holder.memory_mib, pods=holder.pods, use=holder.use
        )


_ROWS = {"cards": _cards, "pods": _pods, "namespaces": _namespaces}
TOP_OF = tuple(_ROWS)
