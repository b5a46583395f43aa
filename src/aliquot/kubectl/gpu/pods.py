"""`kubectl gpu pods`."""

import argparse

from aliquot.clock import seconds_of
from aliquot.errors import BadInput
from aliquot.kubectl.gpu.output import Cell, Style, age, busy, gib, say, show, table, used_memory
from aliquot.kubectl.gpu.session import Session, add_server_options
from aliquot.reports.objects import Extra
from aliquot.reports.pods import HolderReport, HoldersReport, PodReport, PodsReport, holders_report, pods_report
from aliquot.reports.report import Report
from aliquot.reports.view import Purpose

EPILOG = """examples:
  kubectl gpu pods                       # pods of your namespace that ask for cards
  kubectl gpu pods -A --by namespace     # how much each namespace holds and uses
  kubectl gpu pods trainer-0 -o json     # one pod, with the UUIDs of its cards
"""

_TITLES = ("NAME", "STATUS", "NODE", "CARDS", "CORES", "MEMORY(GiB)", "BUSY", "USED(GiB)", "AGE")
_WIDE = ("MODEL", "DIALECT", "ASKS")
_BY_TITLES = ("PODS", "WAITING", "CARDS", "CORES", "MEMORY(GiB)", "BUSY", "USED(GiB)")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="POD", help="show only these pods")
    parser.add_argument("--by", choices=("namespace", "node", "model"), default="", help="sum up the pods")
    add_server_options(parser)


def run(options: argparse.Namespace) -> int:
    session = Session(options)
    found = session.report(
        "pods", PodsReport, lambda view: pods_report(view, session.chosen), Extra.LEASES, purpose=Purpose.SHOWING
    )
    report = PodsReport(pods=[pod for pod in found.pods if not options.names or pod.name in options.names])
    if unknown := sorted(set(options.names) - {pod.name for pod in report.pods}):
        raise BadInput(f"there is no pod {', '.join(unknown)} that asks for cards in {session.where}")
    shown: Report = holders_report(report, options.by) if options.by else report
    is_wide = options.output == "wide"
    show(shown, options, lambda style: _text(shown, session.now, session.chosen, style, is_wide=is_wide))
    if not report.pods:
        say(f"no pods ask for cards in {session.where}")
    session.print_missing()
    return 0


def _text(report: Report, now: float, namespace: str, style: Style, *, is_wide: bool) -> str:
    if isinstance(report, HoldersReport):
        return table((report.by.upper(), *_BY_TITLES), [_holder_row(holder) for holder in report.holders], style)
    assert isinstance(report, PodsReport)
    titles = (() if namespace else ("NAMESPACE",)) + _TITLES + (_WIDE if is_wide else ())
    rows = [([] if namespace else [Cell(pod.namespace)]) + _row(pod, now, is_wide) for pod in report.pods]
    return table(titles, rows, style) if rows else ""


def _row(pod: PodReport, now: float, is_wide: bool) -> list[Cell]:
    created = seconds_of(pod.created)
    row = [
        Cell(pod.name),
        Cell("Invalid" if pod.trouble else pod.state, _color(pod)),
        Cell(pod.node),
        Cell(_numbers(pod)),
        Cell(_cores(pod)),
        Cell(gib(pod.memory_mib) if pod.cards else ""),
        busy(pod.use, len(pod.cards)),
        used_memory(pod.use),
        Cell("" if created is None else age(now - created)),
    ]
    models = ", ".join(sorted({card.model for card in pod.cards if card.model}))
    return row + ([Cell(models), Cell(pod.dialect), Cell(pod.trouble or pod.asks)] if is_wide else [])


def _color(pod: PodReport) -> str:
    return "red" if pod.trouble else "yellow" if pod.state in ("Waiting", "Gated", "Terminating") else ""


def _numbers(pod: PodReport) -> str:
    names = ",".join(card.uuid if card.index is None else str(card.index) for card in pod.cards)
    return f"{names}?" if pod.is_unsure else names


def _cores(pod: PodReport) -> str:
    slots = sum(card.slots for card in pod.cards)
    if slots:
        return f"{slots} slot{'s' * (slots > 1)}"
    return f"{pod.cores}%" if pod.cards else ""


def _holder_row(holder: HolderReport) -> list[Cell]:
    return [
        Cell(holder.name),
        Cell(str(holder.pods)),
        Cell(str(holder.waiting), "yellow" if holder.waiting else ""),
        Cell(str(holder.cards)),
        Cell(f"{holder.cores}%"),
        Cell(gib(holder.memory_mib)),
        busy(holder.use, holder.cards),
        used_memory(holder.use),
    ]
