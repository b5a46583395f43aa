"""The embedded cluster as a whole: a store, its registry, and a server on loopback."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from aiohttp import web

from aliquot.embedded.api import kubeconfig
from aliquot.embedded.api.objects import Now, Object, now
from aliquot.embedded.api.registry import PERMANENT_NAMESPACES, Registry
from aliquot.embedded.api.resources import NAMESPACES
from aliquot.embedded.api.server import Server
from aliquot.embedded.api.store import LOG_CAPACITY, Store
from aliquot.embedded.api.subresources import NO_LOGS

_FIRST_NAMESPACES = (*PERMANENT_NAMESPACES, "kube-node-lease")
_SHUTDOWN_SECONDS = 1.0


class EmbeddedCluster:
    """A Kubernetes API on `host:port` while its context is open; port 0 takes a free one.

        async with EmbeddedCluster() as cluster:
            cluster.write_kubeconfig(Path("kubeconfig"))
            cluster.registry.create(resources.PODS, "default", {...})

    Leaving the context ends every open watch at once. Objects live as long as the instance does.
    `logs` answers `kubectl logs` for a pod.
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
    ) -> None:
        self.store = Store(log_capacity)
        self.registry = Registry(self.store, clock, random)
        self._host = host
        self._port = port
        application = Server(self.registry, logs).application()
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        for name in _FIRST_NAMESPACES:
            self.registry.create(NAMESPACES, "", {"metadata": {"name": name}})

    @property
    def url(self) -> str:
        """Where the server listens; raises RuntimeError while it does not."""
        if not self._runner.addresses:
            raise RuntimeError("the embedded cluster is not running")
        host, port, *_ = self._runner.addresses[0]
        return f"http://{host}:{port}"

    def write_kubeconfig(self, path: Path) -> None:
        kubeconfig.write(self.url, path)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()
        await self._runner.cleanup()
