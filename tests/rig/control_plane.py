"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback, each as itself."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.ports import free_port
from tests.rig.certificates import Certificates
from tests.rig.network import LOOPBACK
from tests.rig.processes import Process
from tests.rig.waiting import answers, wait_for

_SERVICES = "10.96.0.0/16"
_READY_SECONDS = 60.0

SchedulerConfig = Mapping[str, Any] | str
"""A KubeSchedulerConfiguration, as a mapping or as its YAML."""


class ControlPlane:
    """Started in two steps, because the second needs the first to answer."""

    def __init__(
        self,
        folder: Path,
        programs: Mapping[str, Path],
        certificates: Certificates,
        *,
        services: str = _SERVICES,
        apiserver: Mapping[str, object] | None = None,
    ) -> None:
        """`services` are the addresses that Services may have; `apiserver` has flags of its own for kube-apiserver."""
        self._folder = folder
        self._programs = programs
        self._certificates = certificates
        ports = [free_port() for _ in range(5)]
        self.etcd_url = f"http://{LOOPBACK}:{ports[0]}"
        self.url = f"https://{LOOPBACK}:{ports[2]}"
        self.etcd = self._process("etcd", self._etcd_flags(ports[1]))
        flags = self._apiserver_flags(ports[2]) | {"service-cluster-ip-range": services} | dict(apiserver or {})
        self.apiserver = self._process("kube-apiserver", flags)
        self.controller_manager = self._process("kube-controller-manager", self._controller_manager_flags(ports[3]))
        self._controller_manager_url = f"https://{LOOPBACK}:{ports[3]}"
        self.scheduler = Scheduler(self, ports[4])

    @property
    def processes(self) -> list[Process]:
        """In the order of their start."""
        return [self.etcd, self.apiserver, self.controller_manager, self.scheduler]

    def start_store(self) -> None:
        self.etcd.start()
        self.apiserver.start()

    def wait_for_apiserver(self) -> None:
        self.wait_ready(self.apiserver, f"{self.url}/readyz", also=[self.etcd])

    def start_controllers(self, scheduler: SchedulerConfig) -> None:
        self.controller_manager.start()
        self.scheduler.configure(scheduler)
        self.scheduler.start()

    def wait_for_controllers(self) -> None:
        # kube-controller-manager has no /readyz
        self.wait_ready(self.controller_manager, f"{self._controller_manager_url}/healthz")
        self.scheduler.wait_ready()

    def wait_ready(self, process: Process, url: str, also: list[Process] | None = None) -> None:
        trust = ssl.create_default_context(cafile=str(self._certificates.authority))
        wait_for(
            f"{process.name} to be ready",
            lambda: answers(url, trust),
            seconds=_READY_SECONDS,
            processes=[process, *(also or [])],
        )

    def kubeconfig(self, name: str) -> Path:
        identity = getattr(self._certificates, name)
        return self._certificates.kubeconfig(self._folder / f"{name}.kubeconfig", server=self.url, identity=identity)

    def process_argv(self, program: str, flags: Mapping[str, object]) -> list[str]:
        return [str(self._programs[program]), *(f"--{name}={value}" for name, value in flags.items())]

    @property
    def folder(self) -> Path:
        return self._folder

    def serving_flags(self, port: int) -> dict[str, object]:
        return {
            "bind-address": LOOPBACK,
            "secure-port": port,
            "tls-cert-file": self._certificates.loopback_server.certificate,
            "tls-private-key-file": self._certificates.loopback_server.key,
        }

    def _process(self, program: str, flags: Mapping[str, object]) -> Process:
        return Process(program, self.process_argv(program, flags), log=self._folder / f"{program}.log")

    def _etcd_flags(self, peer_port: int) -> dict[str, object]:
        peer_url = f"http://{LOOPBACK}:{peer_port}"
        return {
            "data-dir": self._folder / "etcd",
            "listen-client-urls": self.etcd_url,
            "advertise-client-urls": self.etcd_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"default={peer_url}",
            "unsafe-no-fsync": "true",
        }

    def _apiserver_flags(self, port: int) -> dict[str, object]:
        held = self._certificates
        return self.serving_flags(port) | {
            "etcd-servers": self.etcd_url,
            "advertise-address": LOOPBACK,
            # a loopback address is refused as an endpoint of the Service "kubernetes"
            "endpoint-reconciler-type": "none",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "client-ca-file": held.authority,
            "kubelet-certificate-authority": held.authority,
            "kubelet-client-certificate": held.apiserver_to_kubelet.certificate,
            "kubelet-client-key": held.apiserver_to_kubelet.key,
            "kubelet-preferred-address-types": "InternalIP,Hostname",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": held.service_accounts,
            "service-account-signing-key-file": held.service_accounts,
            "requestheader-client-ca-file": held.front_proxy_authority,
            "requestheader-allowed-names": "front-proxy",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": held.front_proxy.certificate,
            "proxy-client-key-file": held.front_proxy.key,
            # an aggregated API is a process on this machine: its Service is an ExternalName
            "enable-aggregator-routing": "false",
            "allow-privileged": "true",
        }

    def _controller_manager_flags(self, port: int) -> dict[str, object]:
        kubeconfig = self.kubeconfig("controller_manager")
        return self.serving_flags(port) | {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "use-service-account-credentials": "true",
            "service-account-private-key-file": self._certificates.service_accounts,
            "root-ca-file": self._certificates.authority,
            "leader-elect": "false",
        }


class Scheduler(Process):
    """kube-scheduler with a configuration that can be changed by a restart."""

    def __init__(self, control_plane: ControlPlane, port: int) -> None:
        self._control_plane = control_plane
        self._ready_url = f"https://{LOOPBACK}:{port}/readyz"
        self._kubeconfig = control_plane.kubeconfig("scheduler")
        self._config = control_plane.folder / "scheduler.yaml"
        flags = control_plane.serving_flags(port) | {
            "config": self._config,
            "authentication-kubeconfig": self._kubeconfig,
            "authorization-kubeconfig": self._kubeconfig,
        }
        super().__init__(
            "kube-scheduler",
            control_plane.process_argv("kube-scheduler", flags),
            log=control_plane.folder / "kube-scheduler.log",
        )

    @property
    def configuration(self) -> str:
        """What it runs with now, for a later `restart`."""
        return self._config.read_text()

    def configure(self, config: SchedulerConfig) -> None:
        """Write the configuration for the next start; the rig fills in how to reach the API server."""
        given = yaml.safe_load(config) if isinstance(config, str) else dict(config)
        document: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        }
        document |= given or {}
        document["clientConnection"] = (document.get("clientConnection") or {}) | {"kubeconfig": str(self._kubeconfig)}
        document["leaderElection"] = {"leaderElect": False}
        self._config.write_text(yaml.safe_dump(document, sort_keys=False))

    def wait_ready(self) -> None:
        self._control_plane.wait_ready(self, self._ready_url)

    def restart(self, config: SchedulerConfig | None = None) -> None:
        """Start again, with another configuration if one is given, and wait until it is ready."""
        self.stop()
        if config is not None:
            self.configure(config)
        self.start()
        self.wait_ready()
