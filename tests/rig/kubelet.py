"""kubelet under a node's own certificate."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.ports import free_port
from tests.rig.certificates import Certificates, Identity
from tests.rig.namespace import Namespace
from tests.rig.network import PodNetwork
from tests.rig.waiting import answers, wait_for

ROOT = "lib/kubelet"
"""kubelet's folder below that of the namespace; inside it is /var/lib/kubelet."""


class Kubelet:
    """Can be stopped and started alone: the containers go on under containerd."""

    def __init__(
        self,
        folder: Path,
        program: Path,
        certificates: Certificates,
        namespace: Namespace,
        network: PodNetwork,
        *,
        kubeconfig: Path,
        serving: Identity,
        node_name: str,
        labels: Mapping[str, str],
        cgroup: str,
        dns_address: str,
    ) -> None:
        root = namespace.folder / ROOT
        self.device_plugins = root / "device-plugins"
        self.pod_resources_socket = root / "pod-resources" / "kubelet.sock"
        self.device_plugins.mkdir(parents=True)
        address = network.node_address
        port, health_port = free_port(address), free_port(address)
        self._health_url = f"http://{address}:{health_port}/healthz"
        config = folder / "kubelet.yaml"
        settings = {
            **_configuration(folder),
            "address": address,
            "port": port,
            "healthzBindAddress": address,
            "healthzPort": health_port,
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(certificates.authority)},
            },
            "cgroupRoot": f"/{cgroup}",
            "clusterDNS": [dns_address],
        }
        config.write_text(yaml.safe_dump(settings, sort_keys=False))
        flags = {
            "config": config,
            "kubeconfig": kubeconfig,
            "hostname-override": node_name,
            "node-ip": address,
            "node-labels": ",".join(f"{key}={value}" for key, value in labels.items()),
        }
        self.process = namespace.process(
            "kubelet",
            [program, *(f"--{name}={value}" for name, value in flags.items())],
            log=folder / "kubelet.log",
        )

    def start(self) -> None:
        self.process.start()

    def stop(self) -> None:
        self.process.stop()

    def restart(self) -> None:
        """Stop, start, and wait until it answers again."""
        self.stop()
        self.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        wait_for(
            "kubelet to be healthy",
            lambda: answers(self._health_url) and self.pod_resources_socket.exists(),
            seconds=60,
            processes=[self.process],
        )


def _configuration(folder: Path) -> dict[str, Any]:
    """What every kubelet of a rig has alike."""
    resolv_conf = folder / "resolv.conf"
    resolv_conf.write_text("")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "readOnlyPort": 0,
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        # the disk of a person's machine may be nearly full, and pods of the rig are tiny
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": str(resolv_conf),
        "clusterDomain": "cluster.local",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "registerWithTaints": [],
        "maxPods": 110,
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "10s",
        "syncFrequency": "5s",
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "shutdownGracePeriod": "0s",
    }
