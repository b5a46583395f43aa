"""`aliquot server` as a process beside the real API server, with every endpoint on a free port."""

import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aliquot.config.server import SERVER
from tests.ports import free_port
from tests.real.scheduler import Scheduling
from tests.rig.network import LOOPBACK
from tests.rig.processes import Process
from tests.rig.waiting import answers, wait_for

_PROGRAM = Path(sys.executable).with_name("aliquot")
_PORTS = {
    path: setting.flag
    for path, setting in SERVER.settings.items()
    if path.startswith("endpoints.") and path.lower().endswith("port")
}
_FAULT = "ALIQUOT_FAULT"
_READY_SECONDS = 60.0
SHORT_LEASE = {"ALIQUOT_LEASE_DURATION": "2", "ALIQUOT_LEASE_RENEW": "1.5", "ALIQUOT_LEASE_RETRY": "0.4"}
"""So that the next server does not wait long for one that was killed."""


class Serving:
    """A server that keeps its ports when it is ended and started again."""

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        env: Mapping[str, str],
        flags: Mapping[str, object],
        trust: ssl.SSLContext | None = None,
    ) -> None:
        """`trust` is for a server whose flags give it certificates."""
        self._trust = trust
        self._ports = {path: free_port() for path in _PORTS}
        words: dict[str, object] = {"--kubeconfig": kubeconfig, "--address": LOOPBACK}
        words |= {_PORTS[path]: port for path, port in self._ports.items()}
        words["--health-port"] = 0
        words |= {f"--{name}": value for name, value in flags.items()}
        argv = [str(_PROGRAM), "server", *(str(word) for pair in words.items() for word in pair)]
        self.process = Process("aliquot-server", argv, log=log, env=dict(env))

    def url(self, endpoint: str) -> str:
        """Scheme, host and port of an endpoint: admission, gpushare, elastic, nvidia, native."""
        return f"{'https' if self._trust else 'http'}://{LOOPBACK}:{self._ports[f'endpoints.{endpoint}.port']}"

    def start(self, *, fault: str = "") -> None:
        """Start it and wait until it is in step; with a fault point it will end there."""
        self.process.env.pop(_FAULT, None)
        if fault:
            self.process.env[_FAULT] = fault
        self.process.start()
        ready = f"{self.url('native')}/readyz"
        wait_for(
            "aliquot to be ready",
            lambda: answers(ready, self._trust) or (fault and not self.process.running),
            seconds=_READY_SECONDS,
            processes=[self.process],
        )


@contextmanager
def serving(
    cluster: Scheduling,
    *,
    account: tuple[str, str] = ("aliquot-system", "aliquot-server"),
    env: Mapping[str, str] | None = None,
    fault: str = "",
    trust: ssl.SSLContext | None = None,
    **flags: object,
) -> Iterator[Serving]:
    """Ready, under this service account; `flags` have underscores for their hyphens."""
    folder = cluster.api.control_plane.folder
    kubeconfig = cluster.service_account_kubeconfig(*account)
    hyphened = {name.replace("_", "-"): value for name, value in flags.items()}
    lease = SHORT_LEASE if fault else {}
    made = Serving(kubeconfig, folder / "aliquot-server.log", {**lease, **(env or {})}, hyphened, trust)
    try:
        made.start(fault=fault)
        yield made
    finally:
        made.process.stop()
