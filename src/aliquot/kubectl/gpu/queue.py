"""`kubectl gpu queue`."""

import argparse

from aliquot.kubectl.gpu.output import Cell, Style, age, say, show, table
from aliquot.kubectl.gpu.session import Session, add_server_options
from aliquot.reports.objects import Extra
from aliquot.reports.queue import QueueReport, WaitingPod, queue_report

EPILOG = """examples:
  kubectl gpu queue                # pods of your namespace that wait for cards
  kubectl gpu queue -A -o wide     # all of them, and what their schedulers said

Pods get cards by priority, then by age. A position counts the waiting pods of all namespaces that you may read.
"""

_TITLES = ("POS", "NAME", "PRIORITY", "WAITING", "BEHIND", "FITS-ON", "ASKS")
_WIDE = ("SCHEDULER", "WHY")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_server_options(parser)


def run(options: argparse.Namespace) -> int:
    session = Session(options)
    needs = (Extra.QUOTAS, Extra.MARKS, Extra.LEASES, Extra.WAITING)
    report = session.report("queue", QueueReport, lambda view: queue_report(view, session.chosen), *needs)
    is_wide = options.output == "wide"
    show(report, options, lambda style: _text(report, session.chosen, style, is_wide=is_wide))
    if not report.pods:
        say(f"no pods wait for cards in {session.where}")
    session.print_missing()
    return 0


def _text(report: QueueReport, namespace: str, style: Style, *, is_wide: bool) -> str:
    titles = (() if namespace else ("NAMESPACE",)) + _TITLES + (_WIDE if is_wide else ())
    rows = [([] if namespace else [Cell(pod.namespace)]) + _row(pod, is_wide) for pod in report.pods]
    return table(titles, rows, style) if rows else ""


def _row(pod: WaitingPod, is_wide: bool) -> list[Cell]:
    row = [
        Cell(str(pod.position)),
        Cell(pod.name),
        Cell(str(pod.priority)),
        Cell("" if pod.waiting_seconds is None else age(pod.waiting_seconds)),
        Cell(pod.behind),
        Cell(pod.fits_on, "green"),
        Cell(pod.asks),
    ]
    return row + ([Cell(pod.scheduler), Cell(pod.why)] if is_wide else [])
