"""`aliquot demo`."""

import sys

import click

from aliquot import logs
from aliquot.app.demo.machines import MAX_AGENTS
from aliquot.app.demo.run import DemoOptions, run
from aliquot.app.demo.workload import SEED
from aliquot.app.running import run_until_stopped
from aliquot.cli.options import CONTEXT, option

_MAX_NODES = 500


@click.command(context_settings=CONTEXT)
@click.option(
    "--stay/--exit",
    default=None,
    help="Keep the demo running, or end it when every sample runs.  [default: stay on a terminal, exit in a pipe]",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, _MAX_NODES),
    help="Number of GPU nodes.  [default: two for gpushare, and one for each other dialect]",
)
@click.option(
    "--agents",
    default=MAX_AGENTS,
    type=click.IntRange(1, MAX_AGENTS),
    help="Number of nodes that run the real agent. All other nodes are simulated.",
)
@click.option("--stream/--no-stream", default=True, help="Create short jobs while the demo stays.")
@click.option("--seed", default=SEED, type=int, help="Seed of the stream of jobs.")
@click.option(
    "--seconds",
    default=60.0,
    type=click.FloatRange(min=0, min_open=True),
    help="How long the cluster may take to start, and how long the samples may take after that.",
)
@click.option("--api-port", default=0, type=click.IntRange(0, 65535), help="Port of the API server; 0: any free port.")
@option("--log-level", default="error", type=click.Choice(list(logs.LEVELS)), help="Lowest level that is logged.")
def command(
    stay: bool | None,
    nodes: int | None,
    agents: int,
    stream: bool,
    seed: int,
    seconds: float,
    api_port: int,
    log_level: str,
) -> None:
    """Run all of Aliquot on an embedded cluster: no Kubernetes, no GPU, no root.

    \b
    Simulated: the API server, the kubelets, the GPUs and the containers; beyond --agents nodes, the agent too.
    Real:      Aliquot's control plane, scheduler and extender endpoints, the agents of --agents nodes, and all
               communication between them.

    The demo creates one sample pod for each dialect, one on two linked cards and one on a MIG instance. Then a card
    fails and returns. On a terminal it then shows live which pods hold which cards, which pods wait and why, while a
    stream of jobs comes and goes. Ctrl-C ends the demo and removes everything. In a pipe it prints a table and exits
    with 0, or prints the reasons and exits with 1.

    Use kubectl with the kubeconfig that the demo prints. The demo's scheduler counts GPU parts, CPU, memory and all
    other resources, respects nodeSelector, and serves every schedulerName. The annotation aliquot-demo/script says
    what a pod does, for example "runs 30s, uses 60%, then fails". A pod without it runs forever.
    """
    stays = sys.stdout.isatty() if stay is None else stay
    logs.configure(log_level)
    run_until_stopped(run(DemoOptions(stays, seconds, api_port, nodes, agents, seed, stream)))
