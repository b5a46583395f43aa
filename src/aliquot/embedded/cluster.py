"""The embedded cluster as a whole: a store, its registry, and a server on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from aiohttp.typedefs import Middleware

from aliquot.apiserver.objects import Now, Object, now
from aliquot.apiserver.store import LOG_CAPACITY
from aliquot.clock import Clock
from aliquot.embedded.api import kubeconfig
from aliquot.embedded.api.front import Front
from aliquot.embedded.api.identity import Users
from aliquot.embedded.api.injection import FaultInjector
from aliquot.embedded.api.listening import ListeningSocket
from aliquot.embedded.api.owning_store import OwningStore
from aliquot.embedded.api.priorities import SYSTEM_CLASSES
from aliquot.embedded.api.registry import PERMANENT_NAMESPACES, Registry
from aliquot.embedded.api.resources import NAMESPACES, PRIORITY_CLASSES
from aliquot.embedded.api.subresources import NO_LOGS
from aliquot.embedded.controllers import Controllers

_FIRST_NAMESPACES = (*PERMANENT_NAMESPACES, "kube-node-lease")
_SHUTDOWN_SECONDS = 1.0


class EmbeddedCluster:
    """A Kubernetes API on `host:port` while its context is open; port 0 takes a free one.

        async with EmbeddedCluster() as cluster:
            cluster.write_kubeconfig(Path("kubeconfig"))
            cluster.registry.create(resources.PODS, "default", {...})

    Leaving the context ends every open watch at once. Objects live as long as the instance. `logs` returns a pod's log
    for `kubectl logs`; `timer` is the clock of faults. Without `controllers`, Deployments, StatefulSets and Jobs create
    no pods. `middlewares` see every request before the server does.
    """

    def __init__(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        clock: Now = now,
        random: Random | None = None,
        log_capacity: int = LOG_CAPACITY,
        logs: Callable[[Object], str] = lambda _: NO_LOGS,
        timer: Clock | None = None,
        controllers: bool = True,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self.store = OwningStore(log_capacity)
        self.registry = Registry(self.store, clock, random)
        self.users = Users()
        self._socket = ListeningSocket(host, port)
        self.faults = FaultInjector(self._socket, timer)
        self._controllers = Controllers(self.registry, timer) if controllers else None
        self._stack = AsyncExitStack()
        application = Front(self.registry, logs, self.users).application()
        application.middlewares[:0] = [*middlewares, self.faults.middleware]
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        for name in _FIRST_NAMESPACES:
            self.registry.create(NAMESPACES, "", {"metadata": {"name": name}})
        for name, value in SYSTEM_CLASSES.items():
            self.registry.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})

    @property
    def url(self) -> str:
        """The server's address. Raises RuntimeError while it does not run."""
        host, port = self._socket.address
        return f"http://{host}:{port}"

    def write_kubeconfig(self, path: Path, user: str = "") -> None:
        """Write a kubeconfig for the administrator or for one of `users`."""
        kubeconfig.write(self.url, path, self.users.token_of(user) if user else "")

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._runner.setup()
            stack.push_async_callback(self._runner.cleanup)
            stack.callback(self.store.close)
            assert self._runner.server is not None, "it was set up"
            await self._socket.open(self._runner.server)
            stack.callback(self._socket.close)
            await stack.enter_async_context(_running(self.faults.run()))
            if self._controllers is not None:
                await stack.enter_async_context(_running(self._controllers.run()))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
