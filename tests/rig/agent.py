"""`aliquot agent` of one node, as a plain process under its own service account."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.ports import free_port
from tests.rig.network import LOOPBACK
from tests.rig.node import Node
from tests.rig.processes import Process
from tests.rig.rig import Rig
from tests.rig.waiting import wait_for

NAMESPACE = "aliquot-system"
PROGRAM = Path(sys.executable).with_name("aliquot")
_FAULT = "ALIQUOT_FAULT"
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
GPUSHARE: tuple[str, ...] = ("gpushare",)


class Agent:
    def __init__(self, rig: Rig, node: Node) -> None:
        self._rig = rig
        self._node = node
        port = free_port()
        self.url = f"http://{LOOPBACK}:{port}"
        flags = {
            "kubeconfig": rig.service_account_kubeconfig(NAMESPACE, "aliquot-agent", node.name),
            "health-port": port,
            "node-name": node.name,
            "device-plugins": node.kubelet.device_plugins,
            "pod-resources": node.kubelet.pod_resources_socket,
            "runtime-endpoint": f"unix://{node.containerd.socket}",
            "cdi-folder": node.containerd.cdi_folder,
            "dev-folder": node.dev_folder,
        }
        name = "aliquot-agent" if node is rig.node else f"aliquot-agent-{node.name}"
        argv = [*_sees(node.proc_driver), *command("agent", flags)]
        self.process = rig.process(name, argv, node.nvml.environment())
        self._command = list(self.process.argv)
        self._dialects = GPUSHARE

    def start(self, fault: str = "", dialects: Sequence[str] = (), flags: Sequence[str] = ()) -> None:
        """Start it, with the same dialects as before unless some are named and with these flags for once, and wait
        until kubelet has taken its registrations."""
        self._dialects = tuple(dialects) or self._dialects
        named = (part for name in self._dialects for part in ("--dialect", name))
        self.process.argv = [*self._command, *named, *flags]
        registered = self.registrations()
        start(self.process, fault)
        self.wait_registered(registered)

    def start_by_labels(self) -> None:
        """Start it without dialects: the labels of the node say what it does."""
        self.process.argv = list(self._command)
        start(self.process)

    def wait_registered(self, before: int) -> None:
        """Wait until it has registered again since there were so many registrations, and the node offers every
        dialect."""
        wait_for(
            "kubelet to take the agent's registrations",
            lambda: self.registrations() > before and self._node_offers_all(),
            seconds=60,
            processes=[self.process],
        )

    def registrations(self) -> int:
        log = self.process.log
        return log.read_text().count("registered with kubelet") if log.exists() else 0

    def _node_offers_all(self) -> bool:
        node = json.loads(self._rig.kubectl("get", "node", self._node.name, "--output=json"))
        return all(node["status"]["allocatable"].get(_OFFERED[name], "0") != "0" for name in self._dialects)


def command(name: str, flags: Mapping[str, object]) -> list[str | Path]:
    """A command of Aliquot's."""
    return [PROGRAM, name, *(part for flag, value in flags.items() for part in (f"--{flag}", str(value)))]


def _sees(proc_driver: Path) -> list[str | Path]:
    """Before a command line: the program has this folder at /proc/driver, where only a driver can make files."""
    bound = 'mount --bind "$0" /proc/driver && exec "$@"'
    return ["unshare", "--mount", "--", "sh", "-c", bound, proc_driver]


def start(process: Process, fault: str = "") -> None:
    """Start it; with a fault point it will end there."""
    process.env.pop(_FAULT, None)
    if fault:
        process.env[_FAULT] = fault
    process.start()
