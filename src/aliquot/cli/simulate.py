"""`aliquot simulate`."""

import os
import sys
from pathlib import Path

import click

from aliquot import logs
from aliquot.app.running import reporting_errors
from aliquot.app.simulate.options import OutputOptions, RunOptions, SourceOptions
from aliquot.app.simulate.simulate import simulate
from aliquot.app.simulate.sources import LISTED, PUBLISHED, SHUFFLED
from aliquot.cli.options import CONTEXT
from aliquot.dialects import Dialect

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command(context_settings=CONTEXT)
@click.option("--nodes", type=_FILE, metavar="FILE", help="The cluster: a CSV list of nodes.")
@click.option("--pods", type=_FILE, metavar="FILE", help="The pods: a CSV list.")
@click.option("--openb", type=_FOLDER, metavar="DIR", help="Nodes and pods of the openb trace, from its folder.")
@click.option("--list", "pod_list", default="default", help="Which of openb's lists of pods.")
@click.option("--arrivals", type=_FILE, multiple=True, metavar="FILE", help="A file with an order of arrival.")
@click.option(
    "--order",
    type=click.Choice([LISTED, SHUFFLED, PUBLISHED]),
    help="In which order pods arrive.  [default: published with --openb, else listed]",
)
@click.option("--seeds", metavar="LIST", help="Seeds of the orders, such as 42-51 or 1,2,7.  [default: 42]")
@click.option(
    "--arrived", default=130.0, type=click.FloatRange(1, 10_000), help="How many percent of the cards pods ask for."
)
@click.option("--departures", metavar="times|LOAD", default="", help="Pods leave again.")
@click.option("--policy", default=Dialect.node_policy, help="The policy that places pods.")
@click.option("--compare", metavar="A,B,C", help="Several policies, side by side.")
@click.option("--know-workload", is_flag=True, help="Tell the policy how common each shape of the list is.")
@click.option("--jobs", "-j", default=os.cpu_count() or 1, type=click.IntRange(min=1), help="Processes.")
@click.option("--output", "-o", default="table", type=click.Choice(["table", "json"]), help="How results are printed.")
def command(
    nodes: Path | None,
    pods: Path | None,
    openb: Path | None,
    pod_list: str,
    arrivals: tuple[Path, ...],
    order: str | None,
    seeds: str | None,
    arrived: float,
    departures: str,
    policy: str,
    compare: str | None,
    know_workload: bool,
    jobs: int,
    output: str,
) -> None:
    """Simulate a cluster: which pods find a place, and what is left of the cards, with any policy."""
    logs.configure("error")
    source = SourceOptions(openb, pod_list, nodes, pods, arrivals, order or "", seeds or "", arrived, departures)
    how = RunOptions((compare or policy).split(","), know_workload, jobs)
    with reporting_errors(2):
        simulate(source, how, OutputOptions(output == "json", (), sys.stderr.isatty()))
