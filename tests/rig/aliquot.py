"""Aliquot itself on the rig: its server and agents as plain processes under their own service accounts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.real.scheduler import pointed_at
from tests.rig.agent import GPUSHARE, NAMESPACE, Agent, command, start
from tests.rig.network import LOOPBACK
from tests.rig.rig import Rig
from tests.rig.waiting import answers, wait_for

__all__ = ["ENDPOINTS", "GPUSHARE", "Aliquot"]

_DEPLOY = Path(__file__).parents[2] / "deploy"
_SHORT_LEASE = {"lease-duration": 5, "lease-renew": 3.5, "lease-retry": 0.5}
"""So that the next server does not wait long for one that was killed."""
ENDPOINTS = ("gpushare", "native")


class Aliquot:
    """Server and agents, each of which can be ended and started again without the cluster noticing a new address.
    `agent` is that of the first node."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        rig.apply(_DEPLOY / "aliquot.yaml")
        ports = {endpoint: free_port() for endpoint in ENDPOINTS}
        self._urls = {endpoint: f"http://{LOOPBACK}:{port}" for endpoint, port in ports.items()}
        self.url, self.native_url = self._urls["gpushare"], self._urls["native"]
        kubeconfig = rig.service_account_kubeconfig(NAMESPACE, "aliquot-server")
        listening = {f"{endpoint}-port": port for endpoint, port in ports.items()}
        flags = {"kubeconfig": kubeconfig, "address": LOOPBACK, **listening, "health-port": 0}
        others = {f"{endpoint}-enabled": "false" for endpoint in ("admission", "elastic", "nvidia")}
        self.server = rig.process("aliquot-server", command("server", flags | others | _SHORT_LEASE))
        self.agents = [Agent(rig, node) for node in rig.nodes]
        self.agent = self.agents[0].process
        self.agent_url = self.agents[0].url

    def start(self, dialects: Sequence[str] = ()) -> None:
        """Start server and agent, make kube-scheduler ask the server, and wait until the node offers its cards."""
        self.start_server()
        self._rig.restart_scheduler(self.scheduler_config())
        self.start_agent(dialects=dialects)

    def serve(self, dialects: Sequence[str], endpoint: str) -> None:
        """Serve these dialects from now on, and let kube-scheduler ask this endpoint."""
        self._rig.restart_scheduler(self.scheduler_config(endpoint))
        self.agent.stop()
        self.start_agent(dialects=dialects)

    def start_server(self, fault: str = "") -> None:
        """Start the server and wait until it is in step; with a fault point it will end there."""
        start(self.server, fault)
        ready = f"{self.url}/readyz"
        wait_for("aliquot server to be ready", lambda: answers(ready), seconds=30, processes=[self.server])

    def start_agent(self, fault: str = "", dialects: Sequence[str] = (), flags: Sequence[str] = ()) -> None:
        self.agents[0].start(fault, dialects, flags)

    def start_agent_by_labels(self) -> None:
        self.agents[0].start_by_labels()

    def wait_registered(self, before: int) -> None:
        self.agents[0].wait_registered(before)

    def registrations(self) -> int:
        return self.agents[0].registrations()

    def scheduler_config(self, endpoint: str = "gpushare") -> dict[str, Any]:
        """The shipped kube-scheduler configuration, pointed at this server."""
        return pointed_at(_DEPLOY / endpoint / "kube-scheduler.yaml", self._urls[endpoint])
