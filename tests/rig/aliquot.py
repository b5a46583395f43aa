"""Aliquot itself on the rig: its server and agent as plain processes under their own service accounts."""

import sys
from collections.abc import Mapping
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


class Aliquot:
    """Server and agent, each of which can be ended and started again without the cluster noticing a new address."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        rig.apply(_DEPLOY / "aliquot.yaml")
        port = free_port()
        self.url = f"http://{LOOPBACK}:{port}"
        flags = {"address": LOOPBACK, "gpushare-port": port, "native-port": 0, "health-port": 0}
        others = {f"{endpoint}-enabled": "false" for endpoint in ("admission", "elastic", "nvidia")}
        self.server = self._process("server", flags | others | _SHORT_LEASE, {})
        environment = {**rig.nvml.environment(), "ALIQUOT_DIALECT": "gpushare"}  # a flag --dialect replaces it
        self.agent = self._process("agent", self._agent_flags(), environment)

    def start(self) -> None:
        """Start both, make kube-scheduler ask the server, and wait until the node offers its cards."""
        self.start_server()
        self._rig.restart_scheduler(self.scheduler_config())
        self.start_agent()

    def start_server(self, fault: str = "") -> None:
        """Start the server and wait until it is in step; with a fault point it will end there."""
        _start(self.server, fault)
        ready = f"{self.url}/readyz"
        wait_for("aliquot server to be ready", lambda: answers(ready), seconds=30, processes=[self.server])

    def start_agent(self, fault: str = "") -> None:
        """Start the agent and wait until kubelet has taken its registration."""
        registered = self.registrations()
        _start(self.agent, fault)
        wait_for(
            "kubelet to take the agent's registration",
            lambda: self.registrations() > registered and self._node_offers_memory(),
            seconds=60,
            processes=[self.agent],
        )

    def scheduler_config(self) -> dict[str, Any]:
        """The shipped kube-scheduler configuration, pointed at this server."""
        return pointed_at(_DEPLOY / "gpushare" / "kube-scheduler.yaml", self.url)

    def _agent_flags(self) -> dict[str, object]:
        return {
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
        return self._rig.process(f"aliquot-{command}", [_PROGRAM, command, *arguments], env)

    def registrations(self) -> int:
        log = self.agent.log
        return log.read_text().count("registered with kubelet") if log.exists() else 0

    def _node_offers_memory(self) -> bool:
        path = "jsonpath={.status.allocatable.aliyun\\.com/gpu-mem}"
        return self._rig.kubectl("get", "node", self._rig.node_name, "--output", path) not in ("", "0")


def _start(process: Process, fault: str) -> None:
    process.env.pop(_FAULT, None)
    if fault:
        process.env[_FAULT] = fault
    process.start()
