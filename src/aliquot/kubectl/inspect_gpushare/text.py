"""The original's two tables."""

from collections.abc import Sequence

from aliquot.kubectl.inspect_gpushare.tab_writer import aligned
from aliquot.kubectl.inspect_gpushare.usage import PENDING, NodeUse, PodUse, unit_of

_SUMMARY_DASHES, _DETAIL_DASHES = 20, 10
_IN_CLUSTER = "Allocated/Total GPU Memory In Cluster:"


def summary(nodes: Sequence[NodeUse]) -> str:
    shown = [node for node in nodes if node.total > 0]
    cards = max((node.cards for node in nodes), default=0)
    has_pending = any(node.used(PENDING) for node in shown)
    columns = "".join(f"GPU{card}(Allocated/Total)\t" for card in range(cards))
    pending = "PENDING(Allocated)\t" if has_pending else ""
    header = f"NAME\tIPADDRESS\t{columns}{pending}GPU Memory({unit_of(nodes)})\n"
    rows = [_summary_row(node, cards, has_pending=has_pending) for node in shown]
    dashes = "-" * (len(rows[0].encode()) + _SUMMARY_DASHES if rows else 0)
    total = _of(sum(node.shown for node in shown), sum(node.total for node in shown))
    return aligned(f"{header}{''.join(rows)}{dashes}\n{_IN_CLUSTER}\n{total}\t\n")


def _summary_row(node: NodeUse, cards: int, *, has_pending: bool) -> str:
    uses = "".join(f"{node.used(card)}/{node.card_total}\t" if card < node.cards else "0/0\t" for card in range(cards))
    pending = f"{node.used(PENDING) or ''}\t" if has_pending else ""
    return f"{node.name}\t{node.address}\t{uses}{pending}{node.shown}/{node.total}\n"


def details(nodes: Sequence[NodeUse]) -> str:
    shown = [node for node in nodes if node.total > 0]
    first = sum(len(_pod_row(pod, shown[0]).encode()) for pod in shown[0].pods) if shown else 0
    dashes = "-" * (first + _DETAIL_DASHES)
    parts = [f"{_node_text(node)}{dashes}\n" for node in shown]
    total = _of(sum(node.counted for node in shown), sum(node.total for node in shown))
    return aligned(f"{''.join(parts)}\n\n{_IN_CLUSTER}\t{total}\t\n")


def _node_text(node: NodeUse) -> str:
    columns = "".join(f"GPU{card}(Allocated)\t" for card in range(node.cards))
    pending = "Pending(Allocated)\t" if node.used(PENDING) else ""
    rows = "".join(_pod_row(pod, node) for pod in node.pods)
    return (
        f"\nNAME:\t{node.name}\nIPADDRESS:\t{node.address}\n\n"
        f"NAME\tNAMESPACE\t{columns}{pending}\n{rows}"
        f"Allocated :\t{node.counted} ({_percent(node.counted, node.total)}%)\t\n"
        f"Total :\t{node.total} \t\n"
    )


def _pod_row(pod: PodUse, node: NodeUse) -> str:
    shown = [*range(node.cards), *([PENDING] if node.used(PENDING) else [])]
    units = "".join(f"{pod.units.get(card, 0)}\t" for card in shown)
    return f"{pod.name}\t{pod.namespace}\t{units}\n"


def _of(used: int, total: int) -> str:
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    return int(used / total * 100) if total else 0
