"""The machines of a cluster without kubelets: what a guide's commands have applied is started here as processes.

* a Deployment with Aliquot's image: `aliquot server` with its arguments, under its account;
* kube-scheduler as the static pod in the manifests folder says, or as a Deployment with a ConfigMap does, its extenders
  at that server.
"""

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from tests.real.scheduler import Scheduling, pointed_at
from tests.real.serving import Serving
from tests.rig.network import LOOPBACK

_IMAGE = "aliquot:"
ENDPOINTS = {3456: "admission", 12345: "gpushare", 39999: "elastic", 8080: "nvidia", 12340: "native"}
_BEHIND = {32766: 12345}
"""What stands before one of them: the NodePort of gpushare's Service."""


class Hosts:
    """`kubernetes` is in the place of /etc/kubernetes. Call `look` when something may have changed."""

    def __init__(self, cluster: Scheduling, kubernetes: Path) -> None:
        self._cluster = cluster
        self._kubernetes = kubernetes
        self._server: Serving | None = None
        self._deployed: dict[str, Any] = {}
        self._secrets = kubernetes.parent / "secrets"
        self._configured: dict[str, Any] = {}
        (kubernetes / "manifests").mkdir(parents=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._cluster.scheduler.stop()
        self._stop_server()

    @property
    def manifest(self) -> Path:
        return self._kubernetes / "manifests" / "kube-scheduler.yaml"

    def look(self) -> None:
        deployments = self._cluster.ask("GET", "/apis/apps/v1/deployments")["items"]
        self._run_server([each for each in deployments if _image(each).startswith(_IMAGE)])
        self._run_scheduler([each for each in deployments if "kube-scheduler" in _image(each)])

    # -- Aliquot

    def _run_server(self, found: list[dict[str, Any]]) -> None:
        wanted = found[0] if found else {}
        if wanted.get("spec") == self._deployed.get("spec"):
            return
        self._stop_server()
        if wanted:
            meta, spec = wanted["metadata"], wanted["spec"]["template"]["spec"]
            kubeconfig = self._cluster.service_account_kubeconfig(meta["namespace"], spec["serviceAccountName"])
            (container,) = spec["containers"]
            mounts = self._mounted(meta["namespace"], spec)
            words = (word.removeprefix("--").split("=") for word in container["args"][1:])
            flags = {name: _at(value, mounts) for name, value in words} | {"address": LOOPBACK}
            log = self._cluster.api.control_plane.folder / "aliquot-server.log"
            trust = ssl.create_default_context(cafile=flags["tls-client-ca-file"]) if "tls-cert-file" in flags else None
            self._server = Serving(kubeconfig, log, {}, flags, trust)
            self._server.start()
        self._deployed = wanted

    def _mounted(self, namespace: str, spec: dict[str, Any]) -> dict[str, Path]:
        """The Secrets of a pod's first container as folders, by where they are mounted."""
        names = {each["name"]: each["secret"]["secretName"] for each in spec.get("volumes", ()) if "secret" in each}
        found = {}
        for mount in spec["containers"][0].get("volumeMounts", ()):
            if mount["name"] in names:
                name = names[mount["name"]]
                data = self._cluster.ask("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")["data"]
                folder = found[mount["mountPath"]] = self._secrets / name
                folder.mkdir(parents=True, exist_ok=True)
                for file, content in data.items():
                    (folder / file).write_bytes(base64.b64decode(content))
        return found

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.process.stop()
            self._server = None

    # -- kube-scheduler

    def _run_scheduler(self, second: list[dict[str, Any]]) -> None:
        wanted = self._of_a_deployment(second[0]) if second else self._of_the_static_pod()
        if self._server is None or not wanted.get("extenders"):
            wanted = {}
        if wanted == self._configured:
            return
        self._cluster.scheduler.stop()
        if wanted and self._server is not None:
            urls = [self._server.url(_endpoint(extender["urlPrefix"])) for extender in wanted["extenders"]]
            self._cluster.schedule(pointed_at(wanted, *urls))
        self._configured = wanted

    def _of_a_deployment(self, deployment: dict[str, Any]) -> dict[str, Any]:
        spec = deployment["spec"]["template"]["spec"]
        (name,) = (volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume)
        data = self._cluster.ask("GET", f"/api/v1/namespaces/kube-system/configmaps/{name}")["data"]
        (text,) = data.values()
        return dict(yaml.safe_load(_at(text, self._mounted("kube-system", spec))))

    def _of_the_static_pod(self) -> dict[str, Any]:
        (container,) = yaml.safe_load(self.manifest.read_text())["spec"]["containers"]
        flags = dict(word.removeprefix("--").partition("=")[::2] for word in container["command"][1:])
        if "config" not in flags:
            return {}
        here = {"/etc/kubernetes": self._kubernetes}
        return dict(yaml.safe_load(_at(Path(_at(flags["config"], here)).read_text(), here)))


def _at(text: str, folders: Mapping[str, Path]) -> str:
    for path, folder in folders.items():
        text = text.replace(path, str(folder))
    return text


def _image(deployment: dict[str, Any]) -> str:
    image: str = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


def _endpoint(url: str) -> str:
    port = urlsplit(url).port or 0
    return ENDPOINTS[_BEHIND.get(port, port)]
