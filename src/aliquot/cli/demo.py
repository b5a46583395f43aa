"""`aliquot demo`."""

import asyncio
import sys
import tempfile
from pathlib import Path

import click

from aliquot import logs
from aliquot.cli import showing
from aliquot.cli.options import SETTINGS, option
from aliquot.cli.running import run_until_stopped
from aliquot.cli.world import World
from aliquot.dialects import Dialect
from aliquot.errors import AliquotError
from aliquot.kube import PODS


class SamplesDoNotRun(AliquotError):
    """The demo's own pods did not all start; the text says which and why."""


@click.command(context_settings=SETTINGS)
@click.option(
    "--stay/--exit",
    default=None,
    help="Stay and show what happens, or end when every sample pod runs.  [default: stay on a terminal, end in a pipe]",
)
@click.option(
    "--seconds",
    default=60.0,
    type=click.FloatRange(min=0, min_open=True),
    help="How long the sample pods may take to start.",
)
@click.option("--api-port", default=0, type=click.IntRange(0, 65535), help="The API server's port; 0 takes a free one.")
@option("--log-level", default="error", type=click.Choice(list(logs.LEVELS)), help="What to log.")
def command(stay: bool | None, seconds: float, api_port: int, log_level: str) -> None:
    """Run the whole product on an embedded cluster: no Kubernetes, no GPU, no root.

    \b
    Simulated: the API server, the nodes' kubelets, the GPUs and the containers.
    Real:      Aliquot's control plane, scheduler loop, extender routes and node agents, and everything they say to
               each other.

    Real kubectl works with the kubeconfig that it prints, for pods, nodes and events: there are no controllers, so no
    Deployments or Jobs. Its scheduler heeds GPU parts and nodeSelector, and serves every schedulerName.
    """
    stays = sys.stdout.isatty() if stay is None else stay
    logs.configure(log_level)
    run_until_stopped(_demo(stays, seconds, api_port))


async def _demo(stays: bool, seconds: float, api_port: int) -> None:
    with tempfile.TemporaryDirectory(prefix="aliquot-") as folder:
        async with World(Path(folder), api_port=api_port) as world:
            showing.welcome(world, stays=stays)
            for dialect in world.dialects:
                sample = dialect.sample_pod()
                await world.client.create(PODS, sample, sample["metadata"]["namespace"])
            try:
                samples_run = world.until(lambda: all(_runs(world, dialect) for dialect in world.dialects))
                await asyncio.wait_for(samples_run, seconds)
            except TimeoutError:
                why = "; ".join(showing.waiting(world))
                raise SamplesDoNotRun(f"not every sample pod runs after {seconds:g} s: {why}") from None
            showing.table(world)
            if stays:
                await showing.live(world)


def _runs(world: World, dialect: Dialect) -> bool:
    sample = dialect.sample_pod()["metadata"]
    pod = world.plane.pods.get(f"{sample['namespace']}/{sample['name']}")
    return pod is not None and pod.status.phase == "Running" and dialect.handed_over(pod)
