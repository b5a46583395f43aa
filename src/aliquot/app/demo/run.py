"""A run of `aliquot demo`: start the cluster, create the samples, print or show the result."""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from aliquot.app.demo import card_failure, plain_text, samples, screen
from aliquot.app.demo.cluster import DemoCluster
from aliquot.app.demo.machines import plan
from aliquot.app.demo.workload import Workload
from aliquot.clock import SystemClock
from aliquot.dialects import standard_dialects
from aliquot.errors import AliquotError


class SamplesDoNotRun(AliquotError):
    """Some of the demo's sample pods did not start in time. The text names them and says why."""


@dataclass(frozen=True)
class DemoOptions:
    """The command line of `aliquot demo`."""

    stays: bool
    seconds: float
    api_port: int
    nodes: int | None
    agents: int
    seed: int
    has_stream: bool


async def run(options: DemoOptions) -> None:
    """Raises SamplesDoNotRun, NotStarted, CardNotBack or BadConfig."""
    machines = plan(standard_dialects(), options.agents, options.nodes)
    with tempfile.TemporaryDirectory(prefix="aliquot-") as folder:
        click.echo(f"Starting an embedded cluster with {len(machines)} nodes; GPUs are simulated, Aliquot is real.")
        async with DemoCluster(Path(folder), machines, api_port=options.api_port, patience=options.seconds) as demo:
            plain_text.welcome(demo, stays=options.stays)
            await samples.create(demo.client, demo.samples)
            await until_samples_run(demo, options.seconds)
            plain_text.table(demo)
            click.echo()
            await card_failure.show(demo, click.echo, options.seconds)
            if options.stays:
                await _stay(demo, options)


async def until_samples_run(demo: DemoCluster, seconds: float) -> None:
    """Raises SamplesDoNotRun."""
    try:
        samples_run = demo.until(lambda: samples.all_run(demo.samples, demo.plane.pods.all()))
        await asyncio.wait_for(samples_run, seconds)
    except TimeoutError:
        why = plain_text.missing(demo)
        raise SamplesDoNotRun(f"not every sample pod runs after {seconds:g} s: {why}") from None


async def _stay(demo: DemoCluster, options: DemoOptions) -> None:
    click.echo()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(screen.live(demo))
        if options.has_stream:
            tasks.create_task(Workload(demo.client, demo.plane, demo.samples, options.seed).run())
            tasks.create_task(card_failure.now_and_then(demo, options.seed, SystemClock()))
