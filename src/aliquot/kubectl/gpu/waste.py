"""`kubectl gpu waste`."""

import argparse

from aliquot.kubectl.gpu.output import Cell, Style, busy, gib, say, show, table, used_memory
from aliquot.kubectl.gpu.session import Session, add_server_options
from aliquot.reports.objects import Extra
from aliquot.reports.view import Purpose
from aliquot.reports.waste import WastefulPod, WasteReport, waste_report

EPILOG = """examples:
  kubectl gpu waste -A             # who holds cards that they do not use, the largest waste first
  kubectl gpu waste --idle         # only pods of your namespace that do nothing

HELD, USED and UNUSED are in cards. A part counts by its cores or its memory, whichever is more of a card.
With --server, IDLE is since when a pod has done nothing: a server of Aliquot has watched it.
"""

_TITLES = ("NAME", "NODE", "HELD", "USED", "UNUSED", "BUSY", "MEMORY(GiB)", "USED(GiB)", "IDLE")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--idle", action="store_true", help="only pods that do nothing")
    add_server_options(parser)


def run(options: argparse.Namespace) -> int:
    session = Session(options)
    report = session.report(
        "waste", WasteReport, lambda view: waste_report(view, session.chosen), Extra.LEASES, purpose=Purpose.SHOWING
    )
    if options.idle:
        report = WasteReport(
            pods=[pod for pod in report.pods if pod.is_idle],
            held=report.held,
            measured=report.measured,
            unused=report.unused,
        )
    show(report, options, lambda style: _text(report, session.chosen, style))
    if not report.pods:
        say(f"no {'idle ' if options.idle else ''}pods hold cards in {session.where}")
    session.print_missing()
    return 0


def _text(report: WasteReport, namespace: str, style: Style) -> str:
    if not report.pods:
        return ""
    titles = (() if namespace else ("NAMESPACE",)) + _TITLES
    rows = [([] if namespace else [Cell(pod.namespace)]) + _row(pod) for pod in report.pods]
    if all(pod.held is None for pod in report.pods):
        return table(titles, rows, style)
    summary = f"{report.unused:.2f} of {report.measured:.2f} cards held by measured pods are unused"
    unmeasured = report.held - report.measured
    summary += f"; the pods on {unmeasured:.2f} more are not measured" if unmeasured > 0 else ""
    return table(titles, rows, style) + f"{summary}\n"


def _row(pod: WastefulPod) -> list[Cell]:
    share = (pod.unused or 0.0) / pod.held if pod.held else 0.0
    held, used, unused = ("" if value is None else f"{value:.2f}" for value in (pod.held, pod.used, pod.unused))
    return [
        Cell(pod.name),
        Cell(pod.node),
        Cell(held),
        Cell(used),
        Cell(unused, "red" if share > 0.5 else ""),
        busy(pod.use, pod.cards),
        Cell(gib(pod.memory_mib)),
        used_memory(pod.use),
        Cell(pod.idle_since or ("now" if pod.is_idle else ""), "red"),
    ]
