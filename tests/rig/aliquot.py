"""Aliquot itself on the rig: its server and agent as plain processes under their own service accounts."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.real.scheduler import pointed_at
from tests.rig.network import LOOPBACK
from tests.rig.processes import Process
from tests.rig.rig import Rig
from tests.rig.waiting import answers, wait_for

_NAMESPACE = "aliquot-system"
_DEPLOY = Path(__file__).parents[2] / "deploy"
_PROGRAM = Path(sys.executable).with_name("aliquot")
_FAULT = "ALIQUOT_FAULT"
_SHORT_LEASE = {"lease-duration": 5, "lease-renew": 3.5, "lease-retry": 0.5}
"""So that the next server does not wait long for one that was killed."""
_OFFERED = {
    "gpushare": "aliyun.com/gpu-mem",
    "tencent": "tencent.com/vcuda-core",
    "elastic": "elastic-gpu/gpu-percent",
    "keti": "keti.com/mpsgpu",
    "nvidia": "nvidia.com/gpu",
    "hami": "nvidia.com/gpu",
    "aliquot": "aliquot.io/gpu",
}
"""A resource of each dialect that every node offers that serves it."""
ENDPOINTS = ("gpushare", "native")
GPUSHARE: tuple[str, ...] = ("gpushare",)


class Aliquot:
    """Server and agent, each of which can be ended and started again without the cluster noticing a new address."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        rig.apply(_DEPLOY / "aliquot.yaml")
        ports = {endpoint: free_port() for endpoint in ENDPOINTS}
        self._urls = {endpoint: f"http://{LOOPBACK}:{port}" for endpoint, port in ports.items()}
        self.url = self._urls["gpushare"]
        listening = {f"{endpoint}-port": port for endpoint, port in ports.items()}
        flags = {"address": LOOPBACK, **listening, "health-port": 0}
        others = {f"{endpoint}-enabled": "false" for endpoint in ("admission", "elastic", "nvidia")}
        self.server = self._process("server", flags | others | _SHORT_LEASE, {})
        health_port = free_port()
        self.agent_url = f"http://{LOOPBACK}:{health_port}"
        self.agent = self._process("agent", self._agent_flags(health_port), rig.nvml.environment())
        self._agent_command = list(self.agent.argv)
        self._dialects = GPUSHARE

    def start(self, dialects: Sequence[str] = ()) -> None:
        """Start both, make kube-scheduler ask the server, and wait until the node offers its cards."""
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
        _start(self.server, fault)
        ready = f"{self.url}/readyz"
        wait_for("aliquot server to be ready", lambda: answers(ready), seconds=30, processes=[self.server])

    def start_agent(self, fault: str = "", dialects: Sequence[str] = (), flags: Sequence[str] = ()) -> None:
        """Start the agent, with the same dialects as before unless some are named and with these flags for once, and
        wait until kubelet has taken its registrations."""
        self._dialects = tuple(dialects) or self._dialects
        named = (part for name in self._dialects for part in ("--dialect", name))
        self.agent.argv = [*self._agent_command, *named, *flags]
        registered = self.registrations()
        _start(self.agent, fault)
        self.wait_registered(registered)

    def start_agent_by_labels(self) -> None:
        """Start the agent without dialects: the labels of the node say what it does."""
        self.agent.argv = list(self._agent_command)
        _start(self.agent, "")

    def wait_registered(self, before: int) -> None:
        """Wait until the agent has registered again since there were so many registrations, and the node offers every
        dialect."""
        wait_for(
            "kubelet to take the agent's registrations",
            lambda: self.registrations() > before and self._node_offers_all(),
            seconds=60,
            processes=[self.agent],
        )

    def scheduler_config(self, endpoint: str = "gpushare") -> dict[str, Any]:
        """The shipped kube-scheduler configuration, pointed at this server."""
        return pointed_at(_DEPLOY / endpoint / "kube-scheduler.yaml", self._urls[endpoint])

    def _agent_flags(self, health_port: int) -> dict[str, object]:
        return {
            "health-port": health_port,
            "node-name": self._rig.node_name,
            "device-plugins": self._rig.device_plugins,
            "pod-resources": self._rig.pod_resources_socket,
            "runtime-endpoint": f"unix://{self._rig.containerd_socket}",
            "cdi-folder": self._rig.cdi_folder,
            "dev-folder": self._rig.dev_folder,
        }

    def _process(self, command: str, flags: Mapping[str, object], env: Mapping[str, str]) -> Process:
        node = self._rig.node_name if command == "agent" else ""
        kubeconfig = self._rig.service_account_kubeconfig(_NAMESPACE, f"aliquot-{command}", node)
        words = {"kubeconfig": kubeconfig, **flags}
        arguments = [part for name, value in words.items() for part in (f"--{name}", str(value))]
        sees = _sees(self._rig.proc_driver) if node else []
        return self._rig.process(f"aliquot-{command}", [*sees, _PROGRAM, command, *arguments], env)

    def registrations(self) -> int:
        log = self.agent.log
        return log.read_text().count("registered with kubelet") if log.exists() else 0

    def _node_offers_all(self) -> bool:
        node = json.loads(self._rig.kubectl("get", "node", self._rig.node_name, "--output=json"))
        return all(node["status"]["allocatable"].get(_OFFERED[name], "0") != "0" for name in self._dialects)


def _sees(proc_driver: Path) -> list[str | Path]:
    """Before a command line: the program has this folder at /proc/driver, where only a driver can make files."""
    bound = 'mount --bind "$0" /proc/driver && exec "$@"'
    return ["unshare", "--mount", "--", "sh", "-c", bound, proc_driver]


def _start(process: Process, fault: str) -> None:
    process.env.pop(_FAULT, None)
    if fault:
        process.env[_FAULT] = fault
    process.start()
