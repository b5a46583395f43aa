"""A real kube-scheduler beside the real API server; nodes and pods are only objects there.

with Scheduling.up() as cluster:
    cluster.create(ready_node("n1", {"aliyun.com/gpu-mem": 30}))
    with serving(cluster) as aliquot:  # tests.real.serving
        cluster.schedule(pointed_at(DEPLOY / "gpushare" / "kube-scheduler.yaml", aliquot.url("gpushare")))
        cluster.create(asking("p", {"aliyun.com/gpu-mem": 3}))
        cluster.wait_bound("p")
"""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml

from tests.checker import Cluster
from tests.real.apiserver import ApiServer
from tests.real.by_hand import Asking, Broom, Refusal
from tests.real.kubelet import removing_deleted_pods
from tests.real.objects import asking, priority_class
from tests.rig.control_plane import Scheduler, SchedulerConfig
from tests.rig.waiting import wait_for

DEPLOY = Path(__file__).parents[2] / "deploy"
_SECONDS = 30.0
_PATHS = {"Node": "/api/v1/nodes", "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses"}


class Scheduling:
    """Start and stop it in the main thread, as everything that starts processes of the rig."""

    def __init__(self, api: ApiServer, ask: Asking) -> None:
        self.api = api
        self.ask = ask
        """Plain requests, with the rights of an administrator."""
        self.apply(DEPLOY / "aliquot.yaml")
        self._broom = Broom(ask)

    @classmethod
    @contextmanager
    def up(cls, progress: Callable[[str], None] = lambda _: None) -> Iterator["Scheduling"]:
        """With Aliquot's accounts and rights; no node, and kube-scheduler not started."""
        with (
            ApiServer.up(progress) as api,
            closing(Asking(api.url)) as ask,
            removing_deleted_pods(api.url),
        ):
            made = cls(api, ask)
            try:
                yield made
            finally:
                made.scheduler.kill()

    @property
    def scheduler(self) -> Scheduler:
        return self.api.control_plane.scheduler

    def schedule(self, config: SchedulerConfig) -> None:
        """Start kube-scheduler with this configuration, or again if it runs, and wait until it is ready."""
        self.scheduler.restart(config)

    def clear(self) -> None:
        """Stop the scheduler and take away what a test has made."""
        self.scheduler.stop()
        self._broom.sweep()

    # -- objects

    def create(self, *objects: Mapping[str, Any]) -> None:
        """Nodes and pods; others go through `apply`."""
        for obj in objects:
            namespace = obj["metadata"].get("namespace", "default")
            self.ask("POST", _PATHS.get(obj["kind"], f"/api/v1/namespaces/{namespace}/pods"), obj)

    def annotate(self, kind: str, name: str, **annotations: str) -> None:
        path = f"/api/v1/nodes/{name}" if kind == "Node" else _pod_path(name)
        self.ask("PATCH", path, {"metadata": {"annotations": annotations}}, content="application/merge-patch+json")

    def ensure_namespace(self, name: str) -> None:
        with suppress(Refusal):  # it is there
            self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def ensure_priority(self, name: str, value: int) -> None:
        """A PriorityClass, which stays; pods may name it when this returns."""
        with suppress(Refusal):  # it is there
            self.create(priority_class(name, value))
        probe = asking("probe", {}, priorityClassName=name)

        def known() -> bool:
            with suppress(Refusal):
                self.ask("POST", "/api/v1/namespaces/default/pods?dryRun=All", probe)
                return True
            return False

        wait_for(f"PriorityClass {name} to be known", known, seconds=_SECONDS)

    def delete_pod(self, name: str, grace: int = 0) -> None:
        self.ask("DELETE", _pod_path(name), {"gracePeriodSeconds": grace})

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", _pod_path(name))
        return found

    def pods(self) -> list[dict[str, Any]]:
        return list(self.ask("GET", "/api/v1/pods")["items"])

    def nodes(self) -> list[dict[str, Any]]:
        return list(self.ask("GET", "/api/v1/nodes")["items"])

    def observe(self) -> Cluster:
        """Everything for the checker."""
        return Cluster(self.pods(), self.nodes())

    # -- waiting

    def bound(self) -> dict[str, str]:
        """The node of every bound pod, by name."""
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.pods()}
        return {name: node for name, node in nodes.items() if node}

    def wait_bound(self, *names: str, seconds: float = _SECONDS) -> dict[str, str]:
        """Wait until all of them have a node; returns `bound()`."""

        def all_bound() -> dict[str, str]:
            now = self.bound()
            return now if now.keys() >= set(names) else {}

        return wait_for(
            f"{', '.join(names)} to be bound", all_bound, seconds=seconds, processes=[self.scheduler], every=0.05
        )

    def wait_annotated(self, name: str, key: str, seconds: float = _SECONDS) -> dict[str, Any]:
        """Wait until the pod has this annotation, which may come after its node; returns the pod."""

        def annotated() -> dict[str, Any]:
            pod = self.pod(name)
            return pod if key in pod["metadata"].get("annotations", {}) else {}

        watched = [self.scheduler] if self.scheduler.running else []
        return wait_for(f"{name} to have {key}", annotated, seconds=seconds, processes=watched, every=0.05)

    def wait_refused(self, name: str, text: str, seconds: float = _SECONDS) -> None:
        """Wait until kube-scheduler has written this text into the pod's condition."""

        def message() -> bool:
            conditions = self.pod(name).get("status", {}).get("conditions", [])
            return any(text in c.get("message", "") for c in conditions if c["type"] == "PodScheduled")

        wait_for(f"{name} to be refused for: {text}", message, seconds=seconds, processes=[self.scheduler], every=0.05)

    # -- as others

    def kubectl(self, *words: str, given: str = "") -> str:
        control_plane = self.api.control_plane
        flags = {"kubeconfig": control_plane.kubeconfig("admin"), "cache-dir": control_plane.folder / "kubectl-cache"}
        argv = [*control_plane.process_argv("kubectl", flags), *words]
        done = subprocess.run(argv, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def apply(self, manifest: Path | str) -> str:
        text = manifest.read_text() if isinstance(manifest, Path) else manifest
        return self.kubectl("apply", "-f", "-", given=text)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a token of this service account, which must exist."""
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
        made = self.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", asked)
        control_plane = self.api.control_plane
        path = control_plane.folder / f"{namespace}-{name}.kubeconfig"
        return self.api.certificates.kubeconfig(path, server=control_plane.url, token=made["status"]["token"])


def pointed_at(config: SchedulerConfig | Path, *urls: str) -> dict[str, Any]:
    """The same configuration with its extenders at another scheme, host and port: one for all, or one for each. Over
    plain HTTP there are no certificates to show."""
    given = config.read_text() if isinstance(config, Path) else config
    document: dict[str, Any] = dict(yaml.safe_load(given) if isinstance(given, str) else given)
    extenders = document["extenders"]
    each = urls if len(urls) > 1 else urls * len(extenders)
    document["extenders"] = [_extender_at(extender, url) for extender, url in zip(extenders, each, strict=True)]
    return document


def _extender_at(extender: Mapping[str, Any], url: str) -> dict[str, Any]:
    moved = {**extender, "urlPrefix": _moved(extender["urlPrefix"], url)}
    if url.startswith("https:"):
        return moved
    return {name: value for name, value in moved.items() if name != "tlsConfig"} | {"enableHTTPS": False}


def _moved(prefix: str, url: str) -> str:
    place = urlsplit(url)
    return urlunsplit(urlsplit(prefix)._replace(scheme=place.scheme, netloc=place.netloc))


def _pod_path(name: str) -> str:
    """Of `name` in the namespace default, or of `namespace/name`."""
    namespace, _, plain = name.rpartition("/")
    return f"/api/v1/namespaces/{namespace or 'default'}/pods/{plain}"
