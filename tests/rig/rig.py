"""The rig: a real Kubernetes of one or more nodes with simulated GPUs, as plain processes of this machine."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.rig import debian, images, leftovers, nvml, prerequisites, programs
from tests.rig.certificates import Certificates
from tests.rig.control_plane import ControlPlane, Scheduler, SchedulerConfig
from tests.rig.errors import RigError
from tests.rig.network import LOOPBACK, PodNetwork
from tests.rig.node import Node, NodeSpec
from tests.rig.nvml import Gpu
from tests.rig.processes import Process
from tests.rig.services import Settings
from tests.rig.waiting import wait_for

DEFAULT_NODE = "gpu-node"


class Rig:
    """A running cluster; leave the context, or call `down`, to end it without a trace. `node` is the first of `nodes`;
    what belongs to a node and is reached through the rig belongs to that one.

    Use it from the main thread: its processes end with the thread that started them.
    """

    @classmethod
    def up(
        cls,
        *,
        progress: Callable[[str], None] = lambda _: None,
        node_name: str = DEFAULT_NODE,
        labels: Mapping[str, str] | None = None,
        gpus: Sequence[Gpu] | None = None,
        more_nodes: Sequence[NodeSpec] = (),
        scheduler: SchedulerConfig = "",
        has_cdi: bool = True,
    ) -> "Rig":
        """Bring a cluster up and wait until its nodes are Ready. Without CDI, they have Debian's containerd.

        Raises RigError, and leaves nothing behind, when a prerequisite is missing or a program fails.
        """
        if lacking := prerequisites.missing():
            raise RigError("\n".join(lacking))
        leftovers.clear()
        found = programs.find(progress)
        if not has_cdi:
            found |= debian.containerd(progress)
        started = time.monotonic()
        first = NodeSpec(node_name, labels or {}, nvml.default_gpus() if gpus is None else gpus)
        specs = [first, *more_nodes]
        networks = PodNetwork.choose_several(len(specs))
        note = leftovers.Note.write(networks)
        try:
            rig = cls(found, note, networks, specs)
        except BaseException:
            note.undo()
            raise
        try:
            rig._start(scheduler, progress)
        except BaseException:
            rig.down()
            raise
        progress(f"up after {time.monotonic() - started:.1f} s, in {rig.folder}")
        return rig

    def __init__(
        self,
        found: Mapping[str, Path],
        note: leftovers.Note,
        networks: Sequence[PodNetwork],
        specs: Sequence[NodeSpec],
    ) -> None:
        """Prepare all files of a new cluster; `up` is what callers want."""
        network = self._network = networks[0]
        self._note = note
        self._programs = found
        self._others: list[Process] = []
        self.folder = Path(note.folder)
        network.allow_forwarding()
        self._certificates = Certificates(self.folder / "certificates", network.node_address, network.api_address)
        self._control_plane = ControlPlane(self.folder, found, self._certificates, services=network.services)
        self.admin_kubeconfig = self._control_plane.kubeconfig("admin")
        self.nodes = [
            Node(
                self.folder / spec.name,
                found,
                self._certificates,
                own,
                spec=spec,
                cgroup=cgroup,
                api=self.apiserver_url,
                dns_address=network.dns_address,
            )
            for spec, own, cgroup in zip(specs, networks, note.cgroups, strict=True)
        ]
        self.node = self.nodes[0]
        self.node_name = self.node.name
        self.dev_folder = self.node.dev_folder
        self.containerd = self.node.containerd
        self.kubelet = self.node.kubelet
        self.nvml = self.node.nvml

    def _start(self, scheduler: SchedulerConfig, progress: Callable[[str], None]) -> None:
        progress("starting etcd, kube-apiserver and containerd")
        self._control_plane.start_store()
        for node in self.nodes:
            node.start_runtime()
        basics = [images.pause(self._workshop()), images.busybox()]
        for node in self.nodes:
            node.containerd.wait_ready()
        self.load_images(basics)
        self._control_plane.wait_for_apiserver()
        progress("starting kube-controller-manager, kube-scheduler and kubelet")
        self._control_plane.start_controllers(scheduler)
        for node in self.nodes:
            node.kubelet.start()
        self._control_plane.wait_for_controllers()
        for node in self.nodes:
            self._wait_ready(node)
        self._wait_for_default_account()

    # what a test reaches

    @property
    def apiserver_url(self) -> str:
        return self._control_plane.url

    @property
    def scheduler(self) -> Scheduler:
        return self._control_plane.scheduler

    @property
    def device_plugins(self) -> Path:
        """kubelet's device-plugins folder, as seen from outside the node."""
        return self.kubelet.device_plugins

    @property
    def pod_resources_socket(self) -> Path:
        return self.kubelet.pod_resources_socket

    @property
    def containerd_socket(self) -> Path:
        return self.containerd.socket

    @property
    def cdi_folder(self) -> Path:
        return self.containerd.cdi_folder

    @property
    def node_etc(self) -> Path:
        return self.node.etc

    @property
    def kubectl_program(self) -> Path:
        return self._programs["kubectl"]

    # what a test does

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        """Run kubectl as admin and return its output; RigError with its words if it fails and `check`."""
        done = subprocess.run(
            [self._programs["kubectl"], f"--kubeconfig={self.admin_kubeconfig}", *arguments],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"KUBECACHEDIR": str(self.folder / "kubectl-cache")},
        )
        if check and done.returncode != 0:
            raise RigError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, manifest: str | Path) -> str:
        """Apply a manifest given as its text or as a file."""
        text = manifest.read_text() if isinstance(manifest, Path) else manifest
        return self.kubectl("apply", "-f", "-", input=text)

    def service_account_kubeconfig(self, namespace: str, name: str, node: str = "") -> Path:
        """A kubeconfig with a token of this service account, which must exist; bound to a node, if one is named."""
        bound = ("--bound-object-kind=Node", f"--bound-object-name={node}") if node else ()
        token = self.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=24h", *bound).strip()
        path = self.folder / f"{'-'.join(filter(None, (namespace, name, node)))}.kubeconfig"
        return self._certificates.kubeconfig(path, server=self.apiserver_url, token=token)

    def restart_scheduler(self, config: SchedulerConfig) -> None:
        self.scheduler.restart(config)

    def load_images(self, more: Iterable[images.Image]) -> None:
        """Give images to every node; pods use them with `imagePullPolicy: Never` or `IfNotPresent`."""
        images = list(more)
        for node in self.nodes:
            node.containerd.load(images, self._workshop())

    def load_archive(self, archive: Path) -> None:
        """Give every node all images of one archive."""
        for node in self.nodes:
            node.containerd.load_archive(archive)

    def serve_services(self) -> Process:
        """Let Services and their names be reached, from pods and from this machine."""
        admin = self._certificates.admin
        settings = Settings(
            api=self.apiserver_url,
            authority=str(self._certificates.authority),
            certificate=str(admin.certificate),
            key=str(admin.key),
            node_address=self._network.node_address,
            addresses=self._network.services,
            dns_address=self._network.dns_address,
            link=self._network.services_link,
        )
        return self.start("services", settings.command())

    def write_scheduler_conf(self) -> Path:
        """Where kubeadm puts it on the node: kube-scheduler's own kubeconfig, readable for root only."""
        place = self.node_etc / "kubernetes" / "scheduler.conf"
        place.parent.mkdir(exist_ok=True)
        server = self.apiserver_url.replace(LOOPBACK, self._network.node_address)
        return self._certificates.kubeconfig(place, server=server, identity=self._certificates.scheduler)

    def process(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Process:
        """A further process, to be started by the caller and ended with the rig; NAME.log is its log."""
        made = Process(name, argv, log=self.folder / f"{name}.log", env=env)
        self._others.append(made)
        return made

    def start(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Process:
        """The same, started."""
        made = self.process(name, argv, env)
        made.start()
        return made

    def power_off(self) -> None:
        self.node.power_off()

    def power_on(self) -> None:
        """Start the container runtime and kubelet again, and wait until the node is Ready."""
        self.containerd.start()
        self.containerd.wait_ready()
        self.kubelet.start()
        self._wait_ready(self.node)

    def wait_node_ready(self) -> None:
        self._wait_node_ready(self.node)

    def _wait_ready(self, node: Node) -> None:
        node.kubelet.wait_ready()
        self._wait_node_ready(node)

    def _wait_node_ready(self, node: Node) -> None:
        wait_for(
            f"node {node.name} to be Ready",
            lambda: self._is_ready(node.name),
            seconds=60,
            processes=[node.kubelet.process, node.containerd.process],
            every=0.25,
        )

    def down(self) -> None:
        """End everything and undo what was changed on the machine; the second time there is nothing to do."""
        if not self.folder.exists():
            return
        for process in reversed(self._others):
            process.stop()
        for node in self.nodes:
            node.end()
        for process in self._control_plane.processes:
            process.kill()
        if kept := os.environ.get("ALIQUOT_RIG_LOGS"):
            _keep_logs(self.folder, self.nodes, Path(kept))
        self._note.undo()

    def __enter__(self) -> "Rig":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.down()

    def _is_ready(self, name: str) -> bool:
        answer = self.kubectl("get", "node", name, "--output=json", check=False)
        node = json.loads(answer or "{}")
        conditions = node.get("status", {}).get("conditions", [])
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        # the taint of a node that is not ready goes a moment later, and keeps pods away until then
        return ready and not node["spec"].get("taints")

    def _wait_for_default_account(self) -> None:
        """Pods of the namespace "default" are refused before its service account is made."""
        wait_for(
            "the default service account",
            lambda: self.kubectl("get", "serviceaccount", "default", "--output=name", check=False),
            seconds=30,
            processes=[self._control_plane.controller_manager],
        )

    def _workshop(self) -> Path:
        folder = self.folder / "images"
        folder.mkdir(exist_ok=True)
        return folder


def _keep_logs(folder: Path, nodes: Iterable[Node], kept: Path) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, kept)
    for node in nodes:
        for log in node.folder.glob("*.log"):
            shutil.copy(log, kept / f"{node.name}-{log.name}")
