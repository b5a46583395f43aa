"""`aliquot server`."""

import asyncio

import click
import structlog

from aliquot import logs
from aliquot.cli.options import SETTINGS, dialects_with, kubeconfig, log_level, option, prefix
from aliquot.cli.running import run_until_stopped
from aliquot.control import ControlPlane
from aliquot.doors import health
from aliquot.doors.asgi import Routes
from aliquot.doors.gpushare import GpuShareDoor
from aliquot.doors.listener import Listener
from aliquot.kube import Client, find

_log = structlog.get_logger()


@click.command(context_settings=SETTINGS)
@kubeconfig
@option("--address", default="127.0.0.1", help="The address to listen on; its routes have no authentication.")
@option(
    "--gpushare-port",
    default=12345,
    type=click.IntRange(0, 65535),
    help="The port of gpushare's routes: /gpushare-scheduler/filter, bind, inspect, and /version.",
)
@prefix
@log_level
def command(
    kubeconfig: str | None,
    context: str,
    address: str,
    gpushare_port: int,
    prefix: tuple[str, ...],
    log_level: str,
) -> None:
    """Run the control plane: answer kube-scheduler's extender calls and keep the books.

    \b
    Point kube-scheduler at it (KubeSchedulerConfiguration):
      extenders:
      - urlPrefix: http://ADDRESS:12345/gpushare-scheduler
        filterVerb: filter
        bindVerb: bind
        nodeCacheCapable: true
        managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]

    GET /readyz answers 200 once the mirror of the cluster is in step, and says why not before.
    """
    logs.configure(log_level)
    run_until_stopped(_serve(kubeconfig, context, address, gpushare_port, prefix))


async def _serve(kubeconfig: str | None, context: str, address: str, port: int, prefixes: tuple[str, ...]) -> None:
    dialects = dialects_with(prefixes)
    async with Client(find(kubeconfig, context)) as client:
        plane = ControlPlane(client, dialects=dialects)
        routes = Routes({**GpuShareDoor(plane).routes(), **health.routes(plane)})
        async with Listener(routes, address, port) as listener, asyncio.TaskGroup() as tasks:
            _log.info("listening", address=address, port=listener.port, dialect="gpushare")
            tasks.create_task(plane.run())
            tasks.create_task(listener.lives())
