"""One node of the rig: kubelet, container runtime, simulated cards, and the folders that are its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.rig import cgroups, devices, nvml
from tests.rig.certificates import Certificates
from tests.rig.containerd import Containerd
from tests.rig.kubelet import Kubelet
from tests.rig.namespace import Namespace
from tests.rig.network import PodNetwork
from tests.rig.nvml import FakeNvml, Gpu


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a node is to be."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: Sequence[Gpu] = field(default_factory=nvml.default_gpus)


class Node:
    def __init__(
        self,
        folder: Path,
        programs: Mapping[str, Path],
        certificates: Certificates,
        network: PodNetwork,
        *,
        spec: NodeSpec,
        cgroup: str,
        api: str,
        dns_address: str,
    ) -> None:
        """Prepare all files of a new node; `api` is where it reaches the API server."""
        folder.mkdir()
        network.add_node_address()
        self.folder = folder
        self.name = spec.name
        self.dev_folder = folder / "dev"
        self.proc_driver = folder / "proc-driver"
        """What its agent sees as /proc/driver."""
        self.proc_driver.mkdir()
        self._cgroup = cgroup
        self._namespace = Namespace(folder)
        self.containerd = Containerd(folder, programs, self._namespace, network)
        identity = certificates.of_node(spec.name, network.node_address)
        self.kubeconfig = certificates.kubeconfig(folder / "kubelet.kubeconfig", server=api, identity=identity.client)
        self.kubelet = Kubelet(
            folder,
            programs["kubelet"],
            certificates,
            self._namespace,
            network,
            kubeconfig=self.kubeconfig,
            serving=identity.server,
            node_name=spec.name,
            labels=spec.labels,
            cgroup=cgroup,
            dns_address=dns_address,
        )
        nvml_folder = folder / "nvml"
        nvml_folder.mkdir()
        self.nvml = FakeNvml(nvml_folder, spec.gpus)

    @property
    def etc(self) -> Path:
        """Its own copy of /etc."""
        return self._namespace.folder / "etc"

    @property
    def var_lib(self) -> Path:
        """Its own /var/lib."""
        return self._namespace.folder / "lib"

    def start_runtime(self) -> None:
        """Start what needs no API server."""
        cgroups.create(self._cgroup)
        self._namespace.start()
        self.containerd.start()
        devices.make(self.dev_folder, [gpu.minor for gpu in self.nvml.gpus])
        nvml.build(self.folder / "nvml")

    def power_off(self) -> None:
        """End it as when the power fails. Only its disk is left: no container, no cgroup, nothing in /run, no CDI
        spec."""
        self._namespace.power_off()
        cgroups.kill(self._cgroup)
        cgroups.remove(self._cgroup)
        cgroups.create(self._cgroup)
        for spec in self.containerd.cdi_folder.iterdir():
            spec.unlink()

    def end(self) -> None:
        self._namespace.end()
