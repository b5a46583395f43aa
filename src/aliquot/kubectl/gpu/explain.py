"""`kubectl gpu explain`."""

import argparse
from urllib.parse import quote

from aliquot.kubectl.gpu.output import print_report, write
from aliquot.kubectl.gpu.session import Session, add_server_options
from aliquot.reports.explain import explain_report
from aliquot.reports.explained import Explained
from aliquot.reports.objects import Extra
from aliquot.reports.view import Purpose

EPILOG = """examples:
  kubectl gpu explain patient                # why a pod waits, and what would help
  kubectl gpu explain patient --node gpu-1   # one node, card by card

With --server, a server of Aliquot answers. It also knows which schedulers ask it.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="POD", help="a pod, or the workload that fails to create it")
    parser.add_argument("--node", default="", metavar="NODE", help="also show every card of this node")
    add_server_options(parser)


def run(options: argparse.Namespace) -> int:
    session = Session(options)
    namespace, name = session.namespace, options.name.removeprefix("pod/").removeprefix("pods/")
    report = session.report(
        f"explain/{quote(namespace, safe='')}/{quote(name, safe='')}",
        Explained,
        lambda view: explain_report(view, namespace, name, lambda _: True, node=options.node),
        *(Extra.LEASES, Extra.MARKS, Extra.QUOTAS, Extra.EVENTS, Extra.WAITING),
        purpose=Purpose.EXPLAINING,
        node=options.node,
    )
    if options.output in ("json", "yaml"):
        print_report(report, options.output)
    else:
        write(f"{report.text()}\n")
    session.print_missing()
    return 0
