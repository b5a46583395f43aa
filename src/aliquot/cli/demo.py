"""`aliquot demo`."""

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from aliquot import logs
from aliquot.app.demo import samples, screen, showing
from aliquot.app.demo.hardware import MAX_AGENTS, plan
from aliquot.app.demo.workload import SEED, Workload
from aliquot.app.demo.world import World
from aliquot.app.options import SETTINGS, option
from aliquot.app.running import run_until_stopped
from aliquot.dialects import standard_dialects
from aliquot.errors import AliquotError

MAX_NODES = 500


class SamplesDoNotRun(AliquotError):
    """The demo's own pods did not all start; the text says which and why."""


@dataclass(frozen=True)
class _Choices:
    stays: bool
    seconds: float
    api_port: int
    nodes: int | None
    agents: int
    seed: int
    has_stream: bool


@click.command(context_settings=SETTINGS)
@click.option(
    "--stay/--exit",
    default=None,
    help="Stay and show what happens, or end when every sample runs.  [default: stay on a terminal, end in a pipe]",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, MAX_NODES),
    help="How many GPU nodes there are in all.  [default: --agents and one for each further dialect]",
)
@click.option(
    "--agents",
    default=2,
    type=click.IntRange(1, MAX_AGENTS),
    help="How many of them run the real agent, and serve gpushare; the others are simulated as a whole.",
)
@click.option("--stream/--no-stream", default=True, help="Short jobs that come and go while the demo stays.")
@click.option("--seed", default=SEED, type=int, help="Another seed is another stream of jobs.")
@click.option(
    "--seconds",
    default=60.0,
    type=click.FloatRange(min=0, min_open=True),
    help="How long the cluster, and then the samples, may take to start.",
)
@click.option("--api-port", default=0, type=click.IntRange(0, 65535), help="The API server's port; 0 takes a free one.")
@option("--log-level", default="error", type=click.Choice(list(logs.LEVELS)), help="What to log.")
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
    """Run the whole product on an embedded cluster: no Kubernetes, no GPU, no root.

    \b
    Simulated: the API server, the nodes' kubelets, the GPUs and the containers; on most nodes the agent's sockets.
    Real:      Aliquot's control plane, scheduler loop, extender routes and the agents of --agents nodes, and
               everything they say to each other.

    It starts one pod in the words of every dialect. On a terminal it then shows, live, what is placed where, what
    waits and why, while a stream of jobs comes and goes; Ctrl-C ends it and removes everything. In a pipe it ends with
    a table and 0, or with the reasons and 1.

    Real kubectl works with the kubeconfig that it prints. Its scheduler counts GPU parts, CPU, memory and every other
    resource, heeds nodeSelector, and serves every schedulerName. What a pod does is in its annotation
    aliquot-demo/script, such as "runs 30s, uses 60%, then fails"; without one it runs for ever.
    """
    stays = sys.stdout.isatty() if stay is None else stay
    logs.configure(log_level)
    run_until_stopped(_demo(_Choices(stays, seconds, api_port, nodes, agents, seed, stream)))


async def _demo(choices: _Choices) -> None:
    machines = plan(standard_dialects(), choices.agents, choices.nodes)
    with tempfile.TemporaryDirectory(prefix="aliquot-") as folder:
        click.echo(f"Starting an embedded cluster with {len(machines)} nodes; GPUs are simulated, Aliquot is real.")
        async with World(Path(folder), machines, api_port=choices.api_port, patience=choices.seconds) as world:
            showing.welcome(world, stays=choices.stays)
            await samples.create(world.client, world.samples)
            await until_samples_run(world, choices.seconds)
            showing.table(world)
            if choices.stays:
                await _stay(world, choices)


async def until_samples_run(world: World, seconds: float) -> None:
    try:
        samples_run = world.until(lambda: samples.all_run(world.samples, world.plane.pods.all()))
        await asyncio.wait_for(samples_run, seconds)
    except TimeoutError:
        why = showing.missing(world)
        raise SamplesDoNotRun(f"not every sample pod runs after {seconds:g} s: {why}") from None


async def _stay(world: World, choices: _Choices) -> None:
    click.echo()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(screen.live(world))
        if choices.has_stream:
            tasks.create_task(Workload(world.client, world.plane, world.samples, choices.seed).run())
