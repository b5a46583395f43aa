"""How busy cards, pods and namespaces are, the busiest first."""

from aliquot.reports.nodes import NodesReport
from aliquot.reports.pods import PodsReport, holders_report
from aliquot.reports.report import Report, Use


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


def top_of_cards(report: NodesReport) -> TopReport:
    rows = [
        TopRow(
            name=(node.name, str(card.index)),
            cards=1,
            memory_mib=card.memory_mib,
            pods=len(card.pods),
            use=card.use,
            allocated=card.allocated,
        )
        for node in report.nodes
        for card in node.cards
    ]
    return _busiest_first("cards", rows)


def top_of_pods(report: PodsReport) -> TopReport:
    rows = [
        TopRow(name=(pod.namespace, pod.name), cards=len(pod.cards), memory_mib=pod.memory_mib, pods=1, use=pod.use)
        for pod in report.pods
        if pod.cards
    ]
    return _busiest_first("pods", rows)


def top_of_namespaces(report: PodsReport) -> TopReport:
    rows = [
        TopRow(name=(each.name,), cards=each.cards, memory_mib=each.memory_mib, pods=each.pods, use=each.use)
        for each in holders_report(report, "namespace").holders
    ]
    return _busiest_first("namespaces", rows)


def _busiest_first(of: str, rows: list[TopRow]) -> TopReport:
    """By what is shown: the share of its cards. Those that are not measured come last."""
    return TopReport(of=of, rows=sorted(rows, key=lambda row: (row.use.cores is None, -_share(row), row.name)))


def _share(row: TopRow) -> float:
    return (row.use.cores or 0.0) / max(1, row.cards)
