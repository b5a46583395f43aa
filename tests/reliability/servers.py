"""`aliquot server` processes that a test kills, stops and starts again."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_port

_COMMAND = (sys.executable, "-m", "aliquot", "server")
_ENDPOINTS = ("admission", "elastic", "gpushare", "native", "nvidia")
SHORT_LEASE = {"LEASE_DURATION": "2", "LEASE_RENEW": "1.5", "LEASE_RETRY": "0.4"}


@dataclass
class Server:
    """One replica, always at the same port; its log is kept for whoever looks for the cause of a failure."""

    name: str
    kubeconfig: Path
    folder: Path
    settings: Mapping[str, str]
    endpoints: Sequence[str] = ("gpushare", "native")
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables than the settings."""
    ports: Mapping[str, int] = field(default_factory=lambda: {endpoint: free_port() for endpoint in _ENDPOINTS})
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{self.endpoint('gpushare')}/gpushare-scheduler"

    @property
    def native(self) -> str:
        return self.endpoint("native")

    def endpoint(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self, *, fault: str = "") -> None:
        keys: dict[str, object] = {"KUBECONFIG": self.kubeconfig, "ADMISSION_DEBUG_PORT": 0, "HEALTH_PORT": 0}
        for endpoint in _ENDPOINTS:
            keys[f"{endpoint.upper()}_ENABLED"] = str(endpoint in self.endpoints).lower()
            keys[f"{endpoint.upper()}_PORT"] = self.ports[endpoint]
        ours = {f"ALIQUOT_{name}": str(value) for name, value in {**keys, **self.settings}.items()}
        foreign = {name: value for name, value in os.environ.items() if not name.startswith(("ALIQUOT_", "KUBE"))}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                _COMMAND,
                env={**foreign, **ours, **self.environment} | ({"ALIQUOT_FAULT": fault} if fault else {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def kill(self) -> None:
        """At once, with nothing said to anybody."""
        self.send(signal.SIGKILL)
        await self.ended()

    async def ended(self) -> int:
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, 30)

    def is_stopped(self) -> bool:
        assert self.process is not None
        return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


@contextlib.contextmanager
def replicas(
    count: int, kubeconfig: Path, folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[list[Server]]:
    """Started; none of them outlives the block."""
    made = [Server(f"server-{number}", kubeconfig, folder, settings or SHORT_LEASE) for number in range(count)]
    try:
        for server in made:
            server.start()
        yield made
    finally:
        for server in made:
            if server.process is not None and server.process.poll() is None:
                server.process.kill()
                server.process.wait()
