"""`kubectl gpu top`: live on a terminal, one table in a pipe."""

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterable

from aliquot.kubectl.gpu.output import (
    Cell,
    Style,
    busy,
    gib,
    percent,
    say,
    share_color,
    show,
    table,
    used_memory,
    watts,
)
from aliquot.kubectl.gpu.session import Session, add_server_options
from aliquot.reports.nodes import NodesReport, visible_nodes
from aliquot.reports.objects import Extra
from aliquot.reports.pods import PodsReport, pods_report
from aliquot.reports.report import NO_USE
from aliquot.reports.top import TopReport, top_of_cards, top_of_namespaces, top_of_pods
from aliquot.reports.view import Purpose

EPILOG = """examples:
  kubectl gpu top                        # cards, the busiest first; Ctrl-C ends it
  kubectl gpu top pods -A                # pods of all namespaces
  kubectl gpu top namespaces | head -5   # in a pipe: once, plain columns
"""

_HISTORY = 30
_LEVELS = "▁▂▃▄▅▆▇█"
_CLEAR = "\x1b[H\x1b[J"
_TITLES = {"cards": ("NODE", "CARD"), "pods": ("NAMESPACE", "POD"), "namespaces": ("NAMESPACE",)}
_MORE = ("BUSY", "USED(GiB)", "MEMORY(GiB)", "WATTS")
_LAST = {"cards": ("PODS", "ALLOCATED"), "pods": (), "namespaces": ("PODS",)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", nargs="?", choices=tuple(_TITLES), default="cards", help="of what [default: cards]")
    parser.add_argument(
        "--interval", type=_seconds, default=5.0, metavar="SECONDS", help="between two looks [default: 5]"
    )
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="end after so many looks")
    add_server_options(parser)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return value


def run(options: argparse.Namespace) -> int:
    session, history = Session(options), Curves()
    note = _recall(session, history) if session.has_server and options.kind == "pods" else ""
    is_live = options.output not in ("json", "yaml") and (options.rounds > 1 or sys.stdout.isatty())
    rounds = options.rounds or (0 if is_live else 1)
    done = 0
    while True:
        report = _look(session, options, history, is_live=is_live)
        done += 1
        if done == rounds:
            break
        sys.stdout.flush()
        time.sleep(options.interval)
    if report.rows and all(row.use == NO_USE for row in report.rows):
        say("note: no node reports how busy its cards are; its agent does that, in its Lease")
    if note:
        say(f"note: {note}")
    session.print_missing()
    return 0


def _look(session: Session, options: argparse.Namespace, history: "Curves", *, is_live: bool) -> TopReport:
    report = _report(session, options.kind)
    history.add(report)
    sys.stdout.write(_CLEAR if is_live else "")
    shown = history if is_live or session.has_server else None
    show(report, options, lambda style: _text(report, style, shown))
    return report


def _report(session: Session, kind: str) -> TopReport:
    if kind == "cards":
        return top_of_cards(session.report("nodes", NodesReport, visible_nodes, Extra.LEASES, purpose=Purpose.SHOWING))
    namespace = session.chosen if kind == "pods" else ""
    pods = session.report(
        "pods", PodsReport, lambda view: pods_report(view, namespace), Extra.LEASES, purpose=Purpose.SHOWING
    )
    return top_of_pods(pods) if kind == "pods" else top_of_namespaces(pods)


def _recall(session: Session, history: "Curves") -> str:
    """Take in what the server has seen of each pod before. Returns what is missing there."""
    from aliquot.reports.history import HistoryReport

    known = session.ask("history", HistoryReport)
    for past in known.histories:
        history.recall((past.namespace, past.name), [sample.cores for sample in past.samples])
    return known.note


class Curves:
    """How busy each row was at the last looks."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, ...], deque[float]] = {}

    def add(self, report: TopReport) -> None:
        shown = {row.name: row.use.cores for row in report.rows}
        self._of = {name: self._of.get(name, deque(maxlen=_HISTORY)) for name in shown}  # what is gone is forgotten
        for name, cores in shown.items():
            if cores is not None:
                self._of[name].append(cores)

    def recall(self, name: tuple[str, ...], cores: Iterable[float | None]) -> None:
        """Begin with what a server has seen."""
        self._of[name] = deque((value for value in cores if value is not None), maxlen=_HISTORY)

    def line(self, name: tuple[str, ...], cards: int) -> str:
        return sparkline([value / max(1, cards) for value in self._of.get(name, ())])


def sparkline(shares: Iterable[float]) -> str:
    """A character for each share from 0 to 1."""
    last = len(_LEVELS) - 1
    return "".join(_LEVELS[min(last, max(0, round(share * last)))] for share in shares)


def _text(report: TopReport, style: Style, history: Curves | None) -> str:
    last = _LAST[report.of]
    titles = _TITLES[report.of] + _MORE + last + (("HISTORY",) if history else ())
    rows = []
    for row in report.rows:
        share = None if row.use.cores is None else row.use.cores / max(1, row.cards)
        cells = [
            *map(Cell, row.name),
            Cell(busy(row.use, row.cards).text, "" if share is None else share_color(share), bar=share),
            used_memory(row.use),
            Cell(gib(row.memory_mib)),
            watts(row.use),
            *[Cell(str(row.pods)), Cell(percent(row.allocated))][: len(last)],
        ]
        rows.append(cells + ([Cell(history.line(row.name, row.cards))] if history else []))
    return table(titles, rows, style)
