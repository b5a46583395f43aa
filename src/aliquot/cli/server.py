"""`aliquot server`."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import msgspec
import structlog

import aliquot
from aliquot import logs
from aliquot.cli.beside import beside, health_port, open_debug_port
from aliquot.cli.configured import Configured, given, keys
from aliquot.cli.doors import doors
from aliquot.cli.guests import Guests
from aliquot.cli.listening import certificates, forwarder, limits
from aliquot.cli.options import SETTINGS, option
from aliquot.cli.running import run_until_stopped
from aliquot.config import Configuration, File, Given, Live, Map, Nothing, meaning, showing
from aliquot.config.checking import doubts
from aliquot.config.keys import settings_of
from aliquot.config.tree import Kubernetes
from aliquot.config.variables import strangers
from aliquot.control import ControlPlane, Mode, Side
from aliquot.control.decisions import DecisionLog
from aliquot.control.log_file import require_writable
from aliquot.doors import health
from aliquot.doors.asgi import Routes
from aliquot.doors.debug import Debugger
from aliquot.doors.forwarding import Forwarder
from aliquot.doors.listener import Listener
from aliquot.doors.observing import Observer
from aliquot.doors.tls import Certificates
from aliquot.errors import BadConfig
from aliquot.kube import Client
from aliquot.side_loop import SideLoop

_log = structlog.get_logger()


@keys
@click.command(cls=Configured, context_settings=SETTINGS)
@option("--config", metavar="FILE", help="A YAML file with the keys below; changes are seen within a second or two.")
@option(
    "--config-map", metavar="NAMESPACE/NAME", help="A ConfigMap whose entry config.yaml is such a file, watched live."
)
@click.option(
    "--check-config", is_flag=True, help="Check it, print what is in effect and who said so, and end: 0 good, 1 not."
)
@click.pass_context
def command(ctx: click.Context, /, config: str | None, config_map: str | None, check_config: bool, **_: Any) -> None:
    """Run the control plane: answer kube-scheduler's extender calls and keep the books.

    \b
    Point kube-scheduler at it (KubeSchedulerConfiguration):
      extenders:
      - urlPrefix: http://ADDRESS:12345/gpushare-scheduler
        filterVerb: filter
        bindVerb: bind
        nodeCacheCapable: true
        managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]

    GET :12340/readyz answers 200 when its answers can be trusted, and says why not otherwise; /metrics is there, too.
    Any number of servers may run: one holds the Lease and decides, the others pass calls on to it.

    Every option is also an environment variable and a key of the configuration file. A flag counts before a variable,
    that before the file or ConfigMap, and that before the default. docs/configuration.md lists all keys.
    """
    run_until_stopped(_start(ctx, config, config_map, check_only=check_config))


async def _start(ctx: click.Context, config: str | None, config_map: str | None, *, check_only: bool) -> None:
    if config and config_map:
        raise BadConfig("--config and --config-map are two places for one configuration; give one of them")
    said = given(ctx)
    async with AsyncExitStack() as stack:

        async def client(kubernetes: Kubernetes) -> Client:
            return await stack.enter_async_context(Client(meaning.access(kubernetes)))

        if config_map:
            logs.configure()
            reaching = await client(_given_access(said))
            live = await Live.start(Map(config_map, reaching), said)
        else:
            live = await Live.start(File(config) if config else Nothing(), said)
        if check_only:
            _check(live.tree)
            click.echo(showing.effective(live.effective))
            return
        kubernetes = _given_access(said) if config_map else live.tree.kubernetes
        await serve(live, kubernetes, reaching if config_map else await client(kubernetes))


def _check(tree: Configuration) -> None:
    """What a start would find, and what it would only say. Raises BadConfig."""
    if tree.decision_log.file:
        require_writable(Path(tree.decision_log.file))
    certificates(tree)
    for doubt in (*doubts(tree), *strangers(os.environ)):
        click.echo(f"aliquot: warning: {doubt}", err=True)


def _given_access(said: Mapping[str, Given]) -> Kubernetes:
    """How to reach a ConfigMap: only flags and variables can tell."""
    section = "kubernetes."
    values = {path.removeprefix(section): one.value for path, one in said.items() if path.startswith(section)}
    return msgspec.convert(values, Kubernetes)


async def serve(live: Live, kubernetes: Kubernetes, client: Client, form: logs.Form | None = None) -> None:
    """Told to stop, it goes back the way it came: no more calls, those in flight to their end, the Lease given back.
    `kubernetes` is how the client reaches the API server; `form` is that of the log lines, where it is not our own."""
    with SideLoop("lease and health") as loop:
        async with _side(loop, kubernetes) as side:
            await _serve(live, client, side, form)


@asynccontextmanager
async def _side(loop: SideLoop, kubernetes: Kubernetes) -> AsyncIterator[Side]:
    """Where the Lease is renewed, with connections of its own."""

    async def connect() -> Client:
        return Client(meaning.access(kubernetes))

    client = await loop.run(connect())
    try:
        yield Side(loop, client)
    finally:
        await loop.run(client.close())


async def _serve(live: Live, client: Client, side: Side, form: logs.Form | None) -> None:
    tree = live.tree
    logs.configure(tree.log.level, form)
    _log.info("starting", version=aliquot.__version__, mode=tree.mode)
    _tell_doubts(*doubts(tree), *strangers(os.environ))
    dialects = meaning.dialects(tree)
    plane = ControlPlane(client, dialects=dialects, settings=meaning.control_settings(tree), side=side)

    def apply(changed: Configuration) -> None:
        meaning.set_policies(dialects, changed)
        logs.configure(changed.log.level, form)
        plane.change(meaning.control_settings(changed))
        _tell_doubts(*doubts(changed))

    live.on_change(apply)
    with _decision_log(tree, plane):
        shown = certificates(tree)
        async with asyncio.TaskGroup() as tasks, forwarder(tree, plane, shown) as passing, AsyncExitStack() as stack:
            guests = Guests(tree, client)
            notes = _notes(live, shown, guests)
            await stack.enter_async_context(health_port(tree, plane, side, notes, shown))
            listeners = await _listeners(live, plane, passing, shown, guests, notes, stack)
            ports = {name: listener.port for name, listener in listeners.items()}
            plane.leadership.tell_doors(meaning.doors(tree, ports))
            tasks.create_task(plane.run())
            tasks.create_task(live.run())
            tasks.create_task(guests.check())
            if shown is not None:
                tasks.create_task(shown.run())
            if plane.settings.mode is Mode.OBSERVE:
                tasks.create_task(Observer(plane).run())
            async with asyncio.TaskGroup() as living:
                for listener in listeners.values():
                    living.create_task(listener.lives())


def _tell_doubts(*lines: str) -> None:
    for doubt in lines:
        _log.warning("the configuration may not be what was meant", why=doubt)


def _decision_log(tree: Configuration, plane: ControlPlane) -> AbstractContextManager[object]:
    wanted = tree.decision_log
    return DecisionLog(Path(wanted.file), plane.books, most_mb=wanted.mb) if wanted.file else nullcontext()


def _notes(live: Live, shown: Certificates | None, guests: Guests) -> Callable[[], list[str]]:
    return lambda: [*live.notes(), *(shown.notes() if shown else ()), *guests.notes()]


async def _listeners(
    live: Live,
    plane: ControlPlane,
    forwarder: Forwarder,
    shown: Certificates | None,
    guests: Guests,
    notes: Callable[[], list[str]],
    stack: AsyncExitStack,
) -> dict[str, Listener]:
    """Every door open, by name."""
    tree = live.tree
    listeners: dict[str, Listener] = {}
    debugger = Debugger()
    await open_debug_port(tree, debugger, shown, guests, stack)
    for note in guests.open_doors:
        _log.warning("callers are not asked who they are", why=note)

    for name, (routes, port) in doors(tree, plane, forwarder).items():
        whole = Routes({**routes, **beside(name, tree, plane, debugger), **health.routes(plane, notes, name)})
        listener = Listener(
            whole,
            tree.listen.address,
            port,
            name=name,
            setting=_port_setting(name),
            grace=tree.listen.grace,
            limits=limits(tree),
            certificates=shown,
            callers=guests.of(name, tree.listen.address),
        )
        listeners[name] = await stack.enter_async_context(listener)
        _log.info("listening", door=name, address=tree.listen.address, port=listener.port)
    return listeners


def _port_setting(door: str) -> str:
    path = f"doors.{door}.port"
    (setting,) = (setting for setting in settings_of(Configuration) if setting.path == path)
    return f"{setting.flag} (in the configuration: {path})"
