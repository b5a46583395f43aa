"""The query API of a server as aggregated APIs of the real API server, and the people who ask for it."""

import http.client
import json
import re
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.real.scheduler import Scheduling
from tests.rig.certificates import Identity
from tests.rig.network import LOOPBACK
from tests.rig.processes import Process
from tests.rig.waiting import wait_for

NAMESPACE = "kube-system"
VERSIONS = {"metrics.nvidia.com": "v1alpha1", "nvidia-gpu-scheduler": "v1", "gpu.aliquot.io": "v1alpha1"}
_SECONDS = 30.0
NO_HANDSHAKE = 0
"""In place of a status: the server does not know the CA of the client's certificate."""


ACCOUNT = (NAMESPACE, "nvidia-gpu-scheduler")
_SHIPPED = Path(__file__).parents[2] / "deploy" / "nvidia-gpu-scheduler" / "gpuserver.yaml"
_WORKLOADS = ("StatefulSet", "DaemonSet")


def register(apply: Callable[[str], object], port: int) -> str:
    """Apply the shipped objects, with APIServices that lead to a server on this port of this machine, and return them.
    The server is a process, under its own account."""
    shipped = [each for each in yaml.safe_load_all(_SHIPPED.read_text()) if each["kind"] not in _WORKLOADS]
    for each in shipped:
        if each["kind"] == "Service":
            each["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        elif each["kind"] == "APIService":
            each["spec"]["service"]["port"] = port
    manifests = yaml.safe_dump_all(shipped)
    apply(manifests)
    return manifests


def wait_available(cluster: Scheduling, *processes: Process, is_up: bool = True) -> None:
    def all_are() -> bool:
        _touch(cluster)
        found = cluster.ask("GET", "/apis/apiregistration.k8s.io/v1/apiservices")["items"]
        ours = [each for each in found if each["spec"].get("group") in VERSIONS]
        return all(_is_available(each) is is_up for each in ours)

    wait_for(
        f"the aggregated APIs to be {'up' if is_up else 'down'}", all_are, seconds=60, processes=processes, every=0.5
    )


def _touch(cluster: Scheduling) -> None:
    """kube-apiserver looks at an APIService every half minute, or when it changes."""
    for group, version in VERSIONS.items():
        path = f"/apis/apiregistration.k8s.io/v1/apiservices/{version}.{group}"
        body = {"metadata": {"annotations": {"touched": str(time.monotonic())}}}
        cluster.ask("PATCH", path, body, content="application/merge-patch+json")


def _is_available(api_service: dict[str, Any]) -> bool:
    conditions = api_service.get("status", {}).get("conditions", ())
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


class Person:
    """Somebody with a kubeconfig and kubectl."""

    def __init__(self, cluster: Scheduling, kubeconfig: Path) -> None:
        self._plane = cluster.api.control_plane
        self.kubeconfig = kubeconfig

    def argv(self, *words: str) -> list[str]:
        flags = {"kubeconfig": self.kubeconfig, "cache-dir": self._plane.folder / f"cache-{self.kubeconfig.stem}"}
        return [*self._plane.process_argv("kubectl", flags), *words]

    def kubectl(self, *words: str, code: int = 0) -> str:
        """What kubectl prints, on both outputs."""
        done = subprocess.run(self.argv(*words), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def rows(self, *words: str) -> list[dict[str, str]]:
        """A table by its columns, none of which may be empty."""
        head, *lines = [re.split(r"\s{2,}", line.strip()) for line in self.kubectl("get", *words).splitlines()]
        return [dict(zip(head, line, strict=True)) for line in lines]

    def objects(self, *words: str) -> list[dict[str, Any]]:
        found = json.loads(self.kubectl("get", *words, "-o", "json"))
        return list(found["items"]) if found["kind"].endswith("List") else [found]

    def watching(self, name: str, *words: str) -> "Watching":
        return Watching(name, self.argv(*words), self._plane.folder / f"{name}.log")


class Watching:
    """A kubectl that goes on until the block ends."""

    def __init__(self, name: str, argv: list[str], log: Path) -> None:
        log.unlink(missing_ok=True)
        self._process = Process(name, argv, log=log)
        self._log = log

    def __enter__(self) -> "Watching":
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    @property
    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    def ended(self) -> int | None:
        """Wait until it ends by itself; returns its code."""
        return self._process.wait(_SECONDS)

    def wait(self, *words: str, after: int = 0) -> str:
        """Wait for a line with all of these words, beyond the first `after` lines; returns it."""

        def found() -> str:
            return next((line for line in self.lines[after:] if all(word in line for word in words)), "")

        return wait_for(f"{self._process.name} to see {words}", found, seconds=_SECONDS, every=0.02)


def straight(
    port: int,
    path: str,
    *,
    shown: Identity | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    """Ask the server itself, past the API server, with a client certificate or without one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    connection = http.client.HTTPSConnection(LOOPBACK, port, context=context, timeout=20)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError):
        return NO_HANDSHAKE, None
    finally:
        connection.close()
