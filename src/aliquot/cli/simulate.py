"""`aliquot simulate`."""

import os
import sys
from pathlib import Path

import click

from aliquot import logs
from aliquot.app.running import reporting_errors
from aliquot.app.simulate.options import LISTED, PUBLISHED, SHUFFLED, OutputOptions, RunOptions, SourceOptions
from aliquot.app.simulate.simulate import simulate
from aliquot.cli.options import CONTEXT
from aliquot.dialects import Dialect

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command(context_settings={**CONTEXT, "auto_envvar_prefix": None})
@click.option("--nodes", type=_FILE, metavar="FILE", help="The cluster: a list in CSV, or YAML.")
@click.option("--pods", type=_FILE, metavar="FILE", help="The pods: a list in CSV, or YAML.")
@click.option("--openb", type=_FOLDER, metavar="DIR", help="The openb trace: the folder with its lists.")
@click.option("--list", "pod_list", metavar="NAME", help="Which of openb's lists of pods.  [default: default]")
@click.option("--from-cluster", is_flag=True, help="The nodes and pods of a live cluster, as they are now.")
@click.option(
    "--kubeconfig", default="", show_default=False, metavar="FILE", help="For --from-cluster: path of the kubeconfig."
)
@click.option(
    "--context",
    default="",
    show_default=False,
    metavar="NAME",
    help="For --from-cluster: context of the kubeconfig to use.",
)
@click.option("--decision-log", type=_FILE, metavar="FILE", help="The nodes and pods of a server's decision log.")
@click.option(
    "--keep-bound",
    is_flag=True,
    help="Pods that are bound in the YAML or in the cluster keep their cards. Without it, they arrive like the others.",
)
@click.option(
    "--order",
    type=click.Choice([LISTED, SHUFFLED, PUBLISHED]),
    help="Pods arrive as listed (by their times, if they have any), or shuffled and then drawn from the list until "
    "--arrived, or in the order that openb's authors published for a seed.  [default: published with --openb, else "
    "listed]",
)
@click.option(
    "--seeds", metavar="LIST", help="One run for each of these orders, such as 42-51 or 1,2,7.  [default: 42]"
)
@click.option(
    "--arrivals", type=_FILE, multiple=True, metavar="FILE", help="An order of arrival from a file. May be repeated."
)
@click.option(
    "--arrived",
    type=click.FloatRange(1, 10_000),
    metavar="PERCENT",
    help="Stop when pods have asked for so many percent of the cards.  [default: 130 for shuffled, else all pods]",
)
@click.option(
    "--departures",
    metavar="times|LOAD",
    default="",
    show_default=False,
    help="Pods leave again: at the times in their list, or so that the cluster would settle at a load, in percent of "
    "its cards, if every pod fitted.",
)
@click.option(
    "--policy",
    metavar="NAME",
    help=f"The policy for nodes and cards, or NODE/GPU.  [default: {Dialect.node_policy}]",
)
@click.option("--compare", metavar="A,B,C", help="Several policies, side by side.")
@click.option(
    "--know-workload",
    is_flag=True,
    help="Tell the policy how common each kind of pod is, as in FGD's paper. Without it, it learns from the pods that "
    "come, as in the server.",
)
@click.option("--returnable", is_flag=True, help="How many nodes could go, so that every pod that fits now still fits?")
@click.option(
    "--add-node",
    "add_nodes",
    multiple=True,
    metavar="MODEL[=N]",
    help="What do N more nodes with cards of this model bring? May be repeated, for each by itself.",
)
@click.option(
    "--grow",
    multiple=True,
    metavar="CLASS:PERCENT",
    help="What if there are so many percent more jobs of a class? May be repeated, for each by itself.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Number of processes.  [default: one per CPU]")
@click.option(
    "--plot",
    "plots",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Draw a .png or .svg. May be repeated.",
)
@click.option("--output", "-o", default="table", type=click.Choice(["table", "json"]), help="How results are printed.")
def command(
    nodes: Path | None,
    pods: Path | None,
    openb: Path | None,
    pod_list: str | None,
    from_cluster: bool,
    kubeconfig: str,
    context: str,
    decision_log: Path | None,
    keep_bound: bool,
    order: str | None,
    seeds: str | None,
    arrivals: tuple[Path, ...],
    arrived: float | None,
    departures: str,
    policy: str | None,
    compare: str | None,
    know_workload: bool,
    returnable: bool,
    add_nodes: tuple[str, ...],
    grow: tuple[str, ...],
    jobs: int | None,
    output: str,
    plots: tuple[Path, ...],
) -> None:
    """Place pods on a cluster that exists only on paper, with the engine of the server, and see what is left.

    Pods arrive one after another. Each gets the node and the cards that the policy thinks best, with respect to CPU
    and memory, or it fails and is not tried again. The tables show how many cards are allocated, how much of the rest
    is of no use, and which pods failed.

    \b
    Compare policies on your cluster, as it is now:
      aliquot simulate --from-cluster --compare binpack,spread,fgd
    On paper, in five orders, with a plot:
      aliquot simulate --nodes nodes.csv --pods pods.csv --order shuffled --seeds 1-5 --plot result.png
    Could we return nodes?
      aliquot simulate --from-cluster --returnable
    What would two more nodes with A100 cards bring? And one with T4 cards?
      aliquot simulate --nodes nodes.csv --pods pods.csv --add-node A100=2 --add-node T4
    What if training on 8 cards grows by 30 %?
      aliquot simulate --nodes nodes.csv --pods pods.csv --grow cards=8:30%
    The figures of FGD's paper:
      aliquot simulate --openb openb --seeds 42-51 --compare fgd,bestfit --know-workload

    A class of jobs for --grow is one of class=NAME (the column class or qos of a list, the namespace of a pod),
    cards=N or N-M, share=N-M (percent of each card), model=NAME and name=PATTERN; join several by commas.

    docs/simulate.md describes the lists and every figure.
    """
    logs.configure("error")
    source = SourceOptions(
        openb=openb,
        pod_list=pod_list or "",
        nodes=nodes,
        pods=pods,
        from_cluster=from_cluster,
        kubeconfig=kubeconfig,
        context=context,
        decision_log=decision_log,
        keep_bound=keep_bound,
        arrivals=arrivals,
        order=order or "",
        seeds=seeds or "",
        arrived=arrived,
        departures=departures,
    )
    how = RunOptions(
        policy=policy or "",
        compare=compare,
        know_workload=know_workload,
        jobs=jobs or len(os.sched_getaffinity(0)),
        add_nodes=add_nodes,
        grow=grow,
        returnable=returnable,
    )
    with reporting_errors(2):
        simulate(source, how, OutputOptions(json=output == "json", plots=plots, progress=sys.stderr.isatty()))
