"""`kubectl gpu nodes`."""

import argparse
from collections import Counter
from collections.abc import Sequence

from aliquot.errors import BadInput
from aliquot.kubectl.gpu.output import (
    Cell,
    Style,
    age,
    busy,
    gib,
    percent,
    share_color,
    show,
    table,
    used_memory,
    watts,
)
from aliquot.kubectl.gpu.session import Session, add_server_options
from aliquot.reports.nodes import (
    CardReport,
    ModelReport,
    ModelsReport,
    NodeReport,
    NodesReport,
    models_report,
    visible_nodes,
)
from aliquot.reports.objects import Extra
from aliquot.reports.report import Report, Use, total_use
from aliquot.reports.view import Purpose

EPILOG = """examples:
  kubectl gpu nodes                  # all nodes with cards
  kubectl gpu nodes gpu-1 -o wide    # every card of a node, and who holds it
  kubectl gpu nodes --by model       # how much of each model is left
"""

_NODE_TITLES = ("NAME", "STATUS", "CARDS", "ALLOCATED", "MEMORY(GiB)", "PODS", "BUSY", "MODEL")
_NODE_WIDE = ("USED(GiB)", "WATTS", "DRIVER", "SERVES", "AGENT")
_CARD_TITLES = ("NODE", "CARD", "MODEL", "STATUS", "ALLOCATED", "CORES", "MEMORY(GiB)", "BUSY", "PODS")
_CARD_WIDE = ("USED(GiB)", "WATTS", "UUID")
_MODEL_TITLES = ("MODEL", "NODES", "CARDS", "EMPTY", "CLOSED", "ALLOCATED", "MEMORY(GiB)", "PODS", "BUSY")
_MODEL_WIDE = ("USED(GiB)", "WATTS")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NODE", help="show every card of these nodes")
    parser.add_argument("--cards", action="store_true", help="one line per card")
    parser.add_argument("--by", choices=("model",), default="", help="one line per model")
    add_server_options(parser)


def run(options: argparse.Namespace) -> int:
    session = Session(options)
    found = session.report("nodes", NodesReport, visible_nodes, Extra.LEASES, Extra.MARKS, purpose=Purpose.SHOWING)
    if unknown := sorted(set(options.names) - {node.name for node in found.nodes}):
        raise BadInput(f"there is no node {', '.join(unknown)} with cards")
    report = NodesReport(nodes=[node for node in found.nodes if not options.names or node.name in options.names])
    shown: Report = models_report(report) if options.by else report
    show(shown, options, lambda style: _text(shown, options, style))
    session.print_missing()
    return 0


def _text(report: Report, options: argparse.Namespace, style: Style) -> str:
    is_wide = options.output == "wide"
    if isinstance(report, ModelsReport):
        titles = _MODEL_TITLES + (_MODEL_WIDE if is_wide else ())
        return table(titles, [_model_row(model, is_wide) for model in report.models], style)
    assert isinstance(report, NodesReport)
    if options.cards or options.names:
        titles = _CARD_TITLES + (_CARD_WIDE if is_wide else ())
        rows = [_card_row(node, card, is_wide) for node in report.nodes for card in node.cards]
        return table(titles, rows, style)
    return table(
        _NODE_TITLES + (_NODE_WIDE if is_wide else ()), [_node_row(node, is_wide) for node in report.nodes], style
    )


def _node_row(node: NodeReport, is_wide: bool) -> list[Cell]:
    cards = node.cards
    use = total_use([card.use for card in cards])
    row = [
        Cell(node.name),
        _status(node),
        Cell(str(len(cards))),
        _allocated(sum(card.allocated for card in cards), len(cards)),
        _memory(sum(card.allocated_memory_mib for card in cards), sum(card.memory_mib for card in cards)),
        Cell(str(len(node.pods))),
        busy(use, len(cards)),
        Cell(_models(cards)),
    ]
    more = [*_used(use), Cell(node.driver), Cell(",".join(node.serves)), Cell(node.agent)]
    return row + (more if is_wide else [])


def _status(node: NodeReport) -> Cell:
    closed = Counter(_card_status(card) for card in node.cards if not card.is_sold)
    notes = [] if node.ready else ["NotReady"]
    notes += ["SchedulingDisabled"] if node.cordoned else []
    notes += ["Unreadable"] if node.trouble else []
    notes += [f"AgentSilent({age(node.silent_seconds)})"] if node.silent_seconds is not None else []
    notes += [f"{count}x{what}" for what, count in sorted(closed.items())]
    return Cell(",".join(notes), "yellow" if node.ready else "red") if notes else Cell("Ready")


def _card_status(card: CardReport) -> str:
    return "Unhealthy" if not card.healthy else "Cordoned" if card.cordoned else "Ready"


def _models(cards: Sequence[CardReport]) -> str:
    counts = Counter(_model_name(card) for card in cards)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count}x {model}" for model, count in counts.items())


def _model_name(card: CardReport) -> str:
    return f"{card.model} MIG {card.profile}" if card.profile else card.model


def _allocated(allocated: float, cards: int) -> Cell:
    share = allocated / cards if cards else 0.0
    return Cell(percent(share), share_color(share), bar=share)


def _memory(allocated: int, total: int) -> Cell:
    return Cell(f"{gib(allocated)}/{gib(total)}")


def _used(use: Use) -> list[Cell]:
    return [used_memory(use), watts(use)]


def _card_row(node: NodeReport, card: CardReport, is_wide: bool) -> list[Cell]:
    status = _card_status(card)
    cores = f"{card.allocated_slots}/{card.slots} slots" if card.allocated_slots else f"{card.allocated_cores}%"
    row = [
        Cell(node.name),
        Cell(str(card.index)),
        Cell(_model_name(card)),
        Cell(status, "" if status == "Ready" else "red"),
        _allocated(card.allocated, 1),
        Cell(cores),
        _memory(card.allocated_memory_mib, card.memory_mib),
        busy(card.use, 1),
        Cell(",".join(card.pods)),
    ]
    return row + ([*_used(card.use), Cell(card.uuid)] if is_wide else [])


def _model_row(model: ModelReport, is_wide: bool) -> list[Cell]:
    row = [
        Cell(model.model),
        Cell(str(model.nodes)),
        Cell(str(model.cards)),
        Cell(str(model.empty)),
        Cell(str(model.closed), "red" if model.closed else ""),
        _allocated(model.allocated, model.cards),
        _memory(model.allocated_memory_mib, model.memory_mib),
        Cell(str(model.pods)),
        busy(model.use, model.cards),
    ]
    return row + (_used(model.use) if is_wide else [])
