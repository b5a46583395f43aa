"""A running `aliquot server`: the control plane, its endpoints, and the other ports."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

import structlog

import aliquot
from aliquot import logs
from aliquot.app.server.authentication import Authentication
from aliquot.app.server.endpoints import endpoints
from aliquot.app.server.observability import extra_routes, health_port, open_debug_port
from aliquot.app.server.query_port import QueryPort
from aliquot.app.server.transport import advertised_urls, certificates, forwarder, limits
from aliquot.clock import SystemClock
from aliquot.config.checks import doubts
from aliquot.config.configured_dialects import configured_dialects, set_policies
from aliquot.config.live_config import LiveConfig
from aliquot.config.sections.common import KubernetesSection
from aliquot.config.server import SERVER
from aliquot.config.server_tree import ServerConfig
from aliquot.config.variables import unknown_variables
from aliquot.control import ControlPlane, Side
from aliquot.control.decision_log.writer import DecisionLog
from aliquot.control.loops.observer import Observer
from aliquot.endpoints import health
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.debug import Debugger
from aliquot.endpoints.forwarding import Forwarder
from aliquot.endpoints.listener import Listener
from aliquot.endpoints.tls import Certificates
from aliquot.kube import Client
from aliquot.reports.of_plane import leaders_verdict
from aliquot.side_loop import SideLoop

_log = structlog.get_logger()


def _port_setting(endpoint: str) -> str:
    path = f"endpoints.{endpoint}.port"
    return f"{SERVER.settings[path].flag} (in the configuration: {path})"


async def serve(
    live: LiveConfig,
    kubernetes: KubernetesSection,
    client: Client,
    form: logs.Form | None = None,
    port_setting: Callable[[str], str] = _port_setting,
) -> None:
    """Serve until cancelled. Then refuse new calls, finish running calls, and release the Lease.

    `kubernetes` says how `client` reaches the API server. `form` is the form of log lines, if it is not our own.
    `port_setting` names the option for an endpoint's port. Raises BadConfig.
    """
    with SideLoop("lease and health") as loop:
        async with _side(loop, kubernetes) as side:
            await _serve(live, client, side, form, port_setting)


@asynccontextmanager
async def _side(loop: SideLoop, kubernetes: KubernetesSection) -> AsyncIterator[Side]:
    """The side loop with its own connections, where the Lease is renewed."""

    async def connect() -> Client:
        return Client(kubernetes.access())

    client = await loop.run(connect())
    try:
        yield Side(loop, client)
    finally:
        await loop.run(client.close())


async def _serve(
    live: LiveConfig, client: Client, side: Side, form: logs.Form | None, port_setting: Callable[[str], str]
) -> None:
    config = live.tree
    logs.configure(config.log.level, form)
    _log.info("starting", version=aliquot.__version__, mode=config.mode)
    _warn(*doubts(config), *unknown_variables(os.environ))
    dialects = configured_dialects(config)
    plane = ControlPlane(client, dialects=dialects, settings=config, side=side)

    def apply(changed: ServerConfig) -> None:
        set_policies(dialects, changed.policies)
        logs.configure(changed.log.level, form)
        plane.reconfigure(changed)
        _warn(*doubts(changed))

    live.on_change(apply)
    with _decision_log(config, plane):
        shown = certificates(config)
        authentication = Authentication(config, client)
        query = await _query_port(config, plane, client, shown, authentication)
        async with (
            asyncio.TaskGroup() as tasks,
            forwarder(config, plane, shown, query.ways() if query else {}) as forwarding,
            AsyncExitStack() as stack,
        ):
            notes = _notes(live, shown, authentication, query)
            await stack.enter_async_context(health_port(config, plane, side, notes, shown))
            listeners = await _listeners(
                live, plane, forwarding, shown, authentication, query, notes, port_setting, stack
            )
            ports = {name: listener.port for name, listener in listeners.items()}
            plane.leadership.advertise(advertised_urls(config, ports))
            tasks.create_task(plane.run())
            tasks.create_task(live.run())
            tasks.create_task(authentication.check())
            if shown is not None:
                tasks.create_task(shown.run())
            if query is not None:
                tasks.create_task(query.run())
            if config.mode == "observe":
                tasks.create_task(Observer(plane).run())
            else:
                tasks.create_task(plane.waiting_reasons.run(partial(leaders_verdict, plane)))
            async with asyncio.TaskGroup() as living:
                for listener in listeners.values():
                    living.create_task(listener.lives())


def _warn(*doubts: str) -> None:
    for doubt in doubts:
        _log.warning("the configuration may contain a mistake", why=doubt)


def _decision_log(config: ServerConfig, plane: ControlPlane) -> AbstractContextManager[object]:
    wanted = config.decision_log
    return DecisionLog(Path(wanted.file), plane.cluster, most_mb=wanted.mb) if wanted.file else nullcontext()


def _notes(
    live: LiveConfig, shown: Certificates | None, authentication: Authentication, query: QueryPort | None
) -> Callable[[], list[str]]:
    def notes() -> list[str]:
        own = query.notes() if query else []
        return [*live.notes(), *(shown.notes() if shown else ()), *authentication.notes(), *own]

    return notes


async def _query_port(
    config: ServerConfig,
    plane: ControlPlane,
    client: Client,
    shown: Certificates | None,
    authentication: Authentication,
) -> QueryPort | None:
    if not config.query_api.enabled:
        return None
    query = QueryPort(config, plane, client, SystemClock(), shown, authentication.for_query_port)
    await query.start()
    return query


async def _listeners(
    live: LiveConfig,
    plane: ControlPlane,
    forwarder: Forwarder,
    shown: Certificates | None,
    authentication: Authentication,
    query: QueryPort | None,
    notes: Callable[[], list[str]],
    port_setting: Callable[[str], str],
    stack: AsyncExitStack,
) -> dict[str, Listener]:
    """Open every enabled endpoint. Returns the listeners by name."""
    config = live.tree
    listeners: dict[str, Listener] = {}
    debugger = Debugger()
    await open_debug_port(config, debugger, shown, authentication, stack)
    for note in authentication.open_endpoints:
        _log.warning("an endpoint does not authenticate callers", why=note)

    for name, (routes, port) in endpoints(config, plane, forwarder, query.api if query else None).items():
        extra = {**extra_routes(name, config, plane, debugger), **health.routes(plane, notes, name)}
        own = query if query is not None and name in config.query_api.endpoints else None
        listener = Listener(
            Routes({**routes, **(own.routes(extra) if own else extra)}),
            config.listen.address,
            port,
            name=name,
            setting=port_setting(name),
            grace=config.listen.grace,
            limits=limits(config),
            certificates=own.tls if own else shown,
            callers=own.callers if own else authentication.for_port(name, config.listen.address),
        )
        listeners[name] = await stack.enter_async_context(listener)
        _log.info("listening", endpoint=name, address=config.listen.address, port=listener.port)
    return listeners
