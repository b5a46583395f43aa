"""`kubectl gpu whatif`."""

import argparse
import sys
from pathlib import Path

from aliquot.errors import BadInput
from aliquot.kubectl.gpu.output import Cell, Style, show, table
from aliquot.kubectl.gpu.session import Session, print_missing
from aliquot.plain import why
from aliquot.reports.manifests import MAX_REPLICAS, pods_of
from aliquot.reports.objects import Extra
from aliquot.reports.reading import READ_NODES
from aliquot.reports.what_if import WhatIfReport, what_if

EPILOG = """examples:
  kubectl gpu whatif -f pod.yaml                 # where would this pod go, or why would it wait?
  kubectl gpu whatif -f pod.yaml --replicas 20   # how many of these fit?

Pods are judged as `kubectl gpu explain` judges them: by cards, quotas, node selectors and affinities, taints, CPU,
memory and silent agents. Affinities between pods do not count: only kube-scheduler knows them.
"""

_TITLES = ("POD", "NODE", "CARDS", "MODEL")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--filename", required=True, metavar="FILE", help="manifest of a pod, or of what makes pods; - for stdin"
    )
    parser.add_argument("--replicas", type=_replicas, metavar="N", help="how many [default: as the manifest says]")


def _replicas(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_REPLICAS:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 1 and {MAX_REPLICAS}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    session = Session(options)
    pods = pods_of(_read(options.filename), options.filename, session.namespace, options.replicas)
    view = session.view(Extra.QUOTAS, Extra.MARKS, Extra.LEASES)
    if view.lacks("nodes"):
        raise BadInput(f"you may not list nodes, so it cannot be told where pods would go; ask for {READ_NODES.rule()}")
    report = what_if(view, pods)
    show(report, options, lambda style: _text(report, style))
    print_missing(view)
    return 0 if report.fits == len(report.pods) else 1


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{name} cannot be read: {why(error)}") from error


def _text(report: WhatIfReport, style: Style) -> str:
    placed = [pod for pod in report.pods if pod.node]
    rows = [[Cell(pod.name), Cell(pod.node), Cell(",".join(map(str, pod.cards))), Cell(pod.model)] for pod in placed]
    text = table(_TITLES, rows, style) if rows else ""
    waiting = [pod for pod in report.pods if not pod.node]
    verdict = f"{report.fits} of {len(report.pods)} fit"
    text += style.painted(verdict, "yellow" if waiting else "green") + "\n"
    if waiting:
        text += f"{waiting[0].name} would wait. {waiting[0].why}\n"
    if report.remedies:
        text += "".join(f"  it fits {remedy}\n" for remedy in report.remedies)
    return text
