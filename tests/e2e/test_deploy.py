"""The shipped manifests are taken by a real API server, and the shipped configurations by a real kube-scheduler."""

import os
import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.config.sections.endpoints import ENDPOINTS
from tests.e2e.test_schedulers import ELASTIC, NVIDIA, PLACEMENT, System, example
from tests.ports import free_port
from tests.real.objects import asking, gpu_node
from tests.real.scheduler import DEPLOY, Scheduling, pointed_at
from tests.real.serving import serving
from tests.rig.network import LOOPBACK, PodNetwork
from tests.rig.processes import Process

pytestmark = [pytest.mark.e2e]

KUBERNETES = "/etc/kubernetes"
STATIC = DEPLOY / "static-pod" / "kube-scheduler.yaml"
CONFIGURATIONS = [path for path in sorted(DEPLOY.glob("*/kube-scheduler*.yaml")) if path.parent != STATIC.parent]
OTHERS = {"monitoring"}
"""Prometheus' own files, and objects of its operator."""
MANIFESTS = [
    path
    for path in sorted(DEPLOY.glob("**/*.yaml"))
    if "\nkind: KubeScheduler" not in path.read_text() and path.parent.name not in OTHERS
]


def _name(path: Path) -> str:
    return str(path.relative_to(DEPLOY))


def _documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def _of_kind(path: Path, kind: str) -> dict[str, Any]:
    (found,) = (document for document in _documents(path) if document["kind"] == kind)
    return found


@pytest.mark.parametrize("path", MANIFESTS, ids=_name)
def test_the_api_server_takes_a_manifest_with_every_field(scheduling: Scheduling, path: Path) -> None:
    for document in _documents(path):
        scheduling.ensure_namespace(document["metadata"].get("namespace", "default"))
    taken = scheduling.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", f"--filename={path}"
    )
    assert len(taken.splitlines()) == len(_documents(path))


# -- kube-scheduler


class Machine:
    """A folder in the place of /etc/kubernetes."""

    def __init__(self, cluster: Scheduling, folder: Path) -> None:
        self._cluster = cluster
        self.folder = folder
        (folder / "scheduler").mkdir()
        self.scheduler_conf = folder / "scheduler.conf"
        self.scheduler_conf.write_text(cluster.api.control_plane.kubeconfig("scheduler").read_text())

    def here(self, text: str) -> str:
        return text.replace(KUBERNETES, str(self.folder))

    def run_commands(self, path: Path) -> None:
        """Those that the file's comments tell, such as the making of a certificate."""
        (self.folder / "pki").mkdir(exist_ok=True)
        (self.folder / "pki" / "ca.crt").write_bytes(self._cluster.api.certificates.authority.read_bytes())
        comments = "\n".join(re.findall(r"^ *#   (.*)$", path.read_text(), re.M))
        (kubectl,) = self._cluster.api.control_plane.process_argv("kubectl", {})
        search = f"{Path(kubectl).parent}:{os.environ['PATH']}"
        subprocess.run(["bash", "-euo", "pipefail", "-c", self.here(comments)], check=True, env={"PATH": search})

    def make_certificates(self) -> Path:
        """Where they are; those of kube-scheduler are where its configurations have them."""
        made = self.folder / "aliquot-tls"
        subprocess.run([DEPLOY / "certificates.sh", made], check=True)
        for name in ("ca.crt", "client.crt", "client.key"):
            (self.folder / "scheduler" / name).write_bytes((made / name).read_bytes())
        return made

    def kube_scheduler(self, config: str, command: list[str]) -> Process:
        """A process with the flags of a manifest's command, but for its address."""
        program, *flags = command
        assert program == "kube-scheduler"
        port = free_port()
        (self.folder / "scheduler" / "kube-scheduler.yaml").write_text(self.here(config))
        control_plane = self._cluster.api.control_plane
        own = control_plane.process_argv(program, control_plane.serving_flags(port))
        given = [self.here(flag) for flag in flags if not flag.startswith("--bind-address")]
        process = Process("kube-scheduler", [*own, *given], log=self.folder / "kube-scheduler.log")
        process.start()
        control_plane.wait_ready(process, f"https://{LOOPBACK}:{port}/readyz")
        return process


@pytest.fixture
def machine(scheduling: Scheduling, tmp_path: Path) -> Machine:
    return Machine(scheduling, tmp_path)


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=_name)
def test_the_static_pod_starts_kube_scheduler_with_a_configuration(machine: Machine, path: Path) -> None:
    """With the flags, the kubeconfig and the leader election of the files."""
    machine.make_certificates()
    if "through-apiserver" in path.name:
        machine.run_commands(path)
    (container,) = _of_kind(STATIC, "Pod")["spec"]["containers"]
    process = machine.kube_scheduler(path.read_text(), container["command"])
    process.stop()


def test_kube_scheduler_refuses_a_field_that_only_the_policy_had(machine: Machine) -> None:
    """Which is what makes the test above worth something."""
    config = (DEPLOY / "gpushare" / "kube-scheduler.yaml").read_text().replace("enableHTTPS", "enableHttps")
    (container,) = _of_kind(STATIC, "Pod")["spec"]["containers"]
    with pytest.raises(Exception, match="enableHttps"):
        machine.kube_scheduler(config, container["command"])


def test_the_second_scheduler_binds_under_its_own_account(scheduling: Scheduling, machine: Machine) -> None:
    path = DEPLOY / "gpu-admission" / "gpu-scheduler.yaml"
    scheduling.apply(path)
    scheduling.create(gpu_node("n1", "tencent"))
    config = yaml.safe_load(_of_kind(path, "ConfigMap")["data"]["gpu-scheduler-config.yaml"])
    kubeconfig = scheduling.service_account_kubeconfig("kube-system", "gpu-scheduler")
    (container,) = _of_kind(path, "Deployment")["spec"]["template"]["spec"]["containers"]
    (machine.folder / "my-scheduler").symlink_to(machine.folder / "scheduler")
    name = "gpu-scheduler-config.yaml"
    with serving(scheduling) as aliquot:
        config = pointed_at(config, aliquot.url("admission")) | {"clientConnection": {"kubeconfig": str(kubeconfig)}}
        (machine.folder / "scheduler" / name).write_text(yaml.safe_dump(config))
        process = machine.kube_scheduler("", container["command"])
        try:
            pod = example("tencent")
            scheduling.create({**pod, "spec": {**pod["spec"], "schedulerName": "gpu-scheduler"}})
            scheduling.wait_annotated("vcuda", PLACEMENT)
        finally:
            process.stop()


# -- Aliquot's server in the place of an original


SERVERS = {
    "elastic-gpu": ELASTIC,
    "gpu-admission": System("gpu-admission", "admission", "tencent", frozenset(), "predicates"),
    "gpushare": System("gpushare", "gpushare", "gpushare", frozenset()),
    "nvidia-gpu-scheduler": NVIDIA,
}


@pytest.mark.parametrize("folder", SERVERS)
def test_the_server_schedules_under_the_originals_account(
    scheduling: Scheduling, machine: Machine, folder: str
) -> None:
    """It is asked by a kube-scheduler that shows its certificate, as the configuration says."""
    path, system = DEPLOY / folder / "server.yaml", SERVERS[folder]
    scheduling.apply(path)
    meta = _of_kind(path, "ServiceAccount")["metadata"]
    (container,) = _of_kind(path, "Deployment")["spec"]["template"]["spec"]["containers"]
    flags = dict(flag.removeprefix("--").split("=") for flag in container["args"][1:])
    scheduling.create(gpu_node("n1", system.dialect))
    pod = example(system.dialect)
    made = machine.make_certificates()
    flags = {name: value.replace("/etc/aliquot/tls", str(made)) for name, value in flags.items()}
    account, trust = (meta["namespace"], meta["name"]), ssl.create_default_context(cafile=str(made / "ca.crt"))
    with serving(scheduling, account=account, trust=trust, **{**flags, "address": "127.0.0.1"}) as aliquot:
        config = machine.here(yaml.safe_dump(pointed_at(system.config, aliquot.url(system.endpoint))))
        scheduling.schedule(config)
        scheduling.create(pod)
        scheduling.wait_annotated(pod["metadata"]["name"], PLACEMENT)


# -- through the API server


@pytest.fixture
def address() -> Iterator[str]:
    """One of this machine that is not its loopback's: the API server passes nothing on to that."""
    network = PodNetwork.choose()
    network.add_node_address()
    yield network.node_address
    network.remove_node_address()


def test_kube_scheduler_reaches_the_server_through_the_api_server(
    scheduling: Scheduling, machine: Machine, address: str
) -> None:
    """nvidia-gpu-scheduler's way is the aggregated API: test_query_api.py."""
    system, folder = ELASTIC, DEPLOY / ELASTIC.folder
    path = folder / "kube-scheduler-through-apiserver.yaml"
    machine.run_commands(path)
    scheduling.apply(folder / "server.yaml")
    scheduling.create(gpu_node("n1", system.dialect))
    service = _of_kind(folder / "server.yaml", "Service")
    pod = example(system.dialect)
    anyone: dict[str, Any] = {f"{endpoint}_callers": "anyone" for endpoint in ENDPOINTS}
    with serving(scheduling, address="0.0.0.0", **anyone) as aliquot:
        _put_behind(scheduling, service, address, int(aliquot.url(system.endpoint).rsplit(":", 1)[1]))
        config = machine.here(path.read_text()).replace("https://127.0.0.1:6443", scheduling.api.control_plane.url)
        scheduling.schedule(config)
        scheduling.create(pod)
        scheduling.wait_annotated(pod["metadata"]["name"], PLACEMENT)


def _put_behind(cluster: Scheduling, service: dict[str, Any], address: str, port: int) -> None:
    """A pod with this address behind the Service, as kubelet and kube-controller-manager would do it: the API server
    looks whether the address is that of a pod."""
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    labels = service["spec"]["selector"]
    cluster.create(asking("server", {}, namespace=namespace, labels=labels, nodeName="n1"))
    status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
    path = f"/api/v1/namespaces/{namespace}/pods/server"
    cluster.ask("PATCH", f"{path}/status", status, content="application/merge-patch+json")
    (listed,) = service["spec"]["ports"]
    slice_ = {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "targetRef": {"kind": "Pod", "name": "server", "namespace": namespace}}],
        "ports": [{"name": listed.get("name", ""), "port": port}],
    }
    cluster.ask("POST", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", slice_)
