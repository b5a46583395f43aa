"""A running `aliquot server`: the control plane, its endpoints, and what runs beside them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path

import structlog

import aliquot
from aliquot import logs
from aliquot.app.server.beside import beside, health_port, open_debug_port
from aliquot.app.server.endpoints import endpoints
from aliquot.app.server.guests import Guests
from aliquot.app.server.listening import certificates, forwarder, limits
from aliquot.config import Configuration, Live, meaning
from aliquot.config.checking import doubts
from aliquot.config.keys import settings_of
from aliquot.config.tree import Kubernetes
from aliquot.config.variables import strangers
from aliquot.control import ControlPlane, Mode, Side
from aliquot.control.decision_log.writer import DecisionLog
from aliquot.control.loops.observer import Observer
from aliquot.endpoints import health
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.debug import Debugger
from aliquot.endpoints.forwarding import Forwarder
from aliquot.endpoints.listener import Listener
from aliquot.endpoints.tls import Certificates
from aliquot.kube import Client
from aliquot.side_loop import SideLoop

_log = structlog.get_logger()


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
            plane.leadership.tell_endpoints(meaning.endpoints(tree, ports))
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
    return DecisionLog(Path(wanted.file), plane.cluster, most_mb=wanted.mb) if wanted.file else nullcontext()


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
    """Every endpoint open, by name."""
    tree = live.tree
    listeners: dict[str, Listener] = {}
    debugger = Debugger()
    await open_debug_port(tree, debugger, shown, guests, stack)
    for note in guests.open_endpoints:
        _log.warning("callers are not asked who they are", why=note)

    for name, (routes, port) in endpoints(tree, plane, forwarder).items():
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
        _log.info("listening", endpoint=name, address=tree.listen.address, port=listener.port)
    return listeners


def _port_setting(endpoint: str) -> str:
    path = f"endpoints.{endpoint}.port"
    (setting,) = (setting for setting in settings_of(Configuration) if setting.path == path)
    return f"{setting.flag} (in the configuration: {path})"
