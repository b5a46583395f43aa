"""Every command of docs/coming-from, in the order of its page, on a real API server with a real kube-scheduler.

Paths of a control-plane machine are in a folder, and ports are free ones; what the pages show is compared with what is
printed."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pages import COMING_FROM, coming_from, steps
from tests.ports import free_port
from tests.real.hosts import ENDPOINTS, Hosts
from tests.real.objects import gpu_node, ready_node
from tests.real.scheduler import Scheduling
from tests.real.typing_in import Shell

pytestmark = [pytest.mark.e2e]

ROOT = COMING_FROM.parents[1]
ORIGINALS = Path(__file__).with_name("originals")


def _deployment(namespace: str, name: str, image: str) -> dict[str, Any]:
    """Enough of an original's Deployment to be saved, replaced and put back."""
    labels = {"original": name}
    containers = [{"name": name, "image": image}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


@dataclass(frozen=True)
class Before:
    """The cluster as the original has it."""

    nodes: list[dict[str, Any]]
    objects: list[dict[str, Any]] = field(default_factory=list)
    namespaces: tuple[str, ...] = ()


def _printed(name: str) -> list[dict[str, Any]]:
    """A manifest of the original's own guide."""
    return [document for document in yaml.safe_load_all((ORIGINALS / name).read_text()) if document]


HAMI_CARD = {"id": "GPU-7b2c", "count": 10, "devmem": 15360, "devcore": 100, "type": "NVIDIA-Tesla T4", "health": True}
WEBHOOK = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "hami-webhook"},
}
T4 = {"nodeinfo": "gpu", "nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360"}

BEFORE = {
    "elastic-gpu": Before(
        [ready_node("gpu-1", {"elastic-gpu/gpu-percent": 200})],
        [_deployment("kube-system", "elastic-gpu-scheduler", "registry.example/elastic-gpu-scheduler:1")],
    ),
    "gpu-admission": Before(
        [
            ready_node(
                "gpu-1",
                {"tencent.com/vcuda-core": 200, "tencent.com/vcuda-memory": 120},
                labels={"nvidia-device-enable": "enable"},
            )
        ],
        _printed("gpu-admission.yaml"),
    ),
    "gpushare": Before(
        [ready_node("gpu-1", {"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2}, labels={"gpushare": "true"})],
        _printed("gpushare-schd-extender.yaml"),
    ),
    "hami": Before(
        [
            ready_node(
                "gpu-1",
                {"nvidia.com/gpu": 10},
                labels={"gpu": "on"},
                annotations={"hami.io/node-nvidia-register": json.dumps([HAMI_CARD])},
            )
        ],
        [_deployment("kube-system", "hami-scheduler", "registry.example/hami:1"), WEBHOOK],
    ),
    "keti": Before(
        [gpu_node("gpu-1", "keti")],
        [_deployment("gpu", "keti-gpu-scheduler", "registry.example/keti-gpu-scheduler:1")],
        ("gpu",),
    ),
    "nvidia-gpu-scheduler": Before([ready_node("gpu-1", {"nvidia.com/gpu": 2}, labels=T4)]),
}
CONTROL_PLANE = ready_node("cp-1", labels={"node-role.kubernetes.io/control-plane": ""})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands are typed; what they write stays out of the repository."""
    for name in ("deploy", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.fixture
def hosts(scheduling: Scheduling, folder: Path) -> Iterator[Hosts]:
    with Hosts(scheduling, folder / "etc" / "kubernetes") as running:
        pod = yaml.safe_load((ROOT / "deploy" / "static-pod" / "kube-scheduler.yaml").read_text())
        pod["spec"]["containers"][0]["command"] = ["kube-scheduler", "--kubeconfig=/etc/kubernetes/scheduler.conf"]
        running.manifest.write_text(yaml.safe_dump(pod))
        (folder / "root").mkdir()
        yield running


class Reader:
    """Types what a page says; addresses and folders of a machine become those of the test."""

    def __init__(self, cluster: Scheduling, folder: Path) -> None:
        self._folder = folder
        self._ports = {port: free_port() for port in ENDPOINTS}
        control_plane = cluster.api.control_plane
        (kubectl,) = control_plane.process_argv("kubectl", {})
        programs = f"{Path(kubectl).parent}:{Path(sys.executable).parent}"
        ports = {f"ALIQUOT_{endpoint.upper()}_PORT": str(self._ports[port]) for port, endpoint in ENDPOINTS.items()}
        self.env = {
            **{key: value for key, value in os.environ.items() if "proxy" not in key.lower()},
            **ports,
            "ALIQUOT_ADMISSION_DEBUG_PORT": "0",
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECACHEDIR": str(folder / "kubectl-cache"),
            "KUBECONFIG": str(control_plane.kubeconfig("admin")),
        }

    def here(self, commands: str) -> str:
        for path in ("/etc/kubernetes", "/root"):
            commands = commands.replace(f" {path}", f" {self._folder}{path}")
        for port, free in self._ports.items():
            commands = commands.replace(f"http://127.0.0.1:{port}/", f"http://127.0.0.1:{free}/")
        return commands


@pytest.fixture
def before(scheduling: Scheduling, request: pytest.FixtureRequest) -> Iterator[Before]:
    """The original's cluster, in which the pages' own nodes are called gpu-1 and cp-1."""
    made: Before = BEFORE[request.node.callspec.params["page"].stem]
    for namespace in made.namespaces:
        scheduling.ensure_namespace(namespace)
    scheduling.create(CONTROL_PLANE, *made.nodes)
    for each in made.objects:
        scheduling.apply(yaml.safe_dump(each))
    yield made
    for each in made.objects:
        scheduling.kubectl("delete", "--ignore-not-found", "-f", "-", given=yaml.safe_dump(each))


def _deployed(cluster: Scheduling) -> dict[str, tuple[int, list[str]]]:
    """Replicas and images of every Deployment, but for kube-schedulers: those follow the cluster's version."""
    found = cluster.ask("GET", "/apis/apps/v1/deployments")["items"]
    return {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": (
            each["spec"]["replicas"],
            [container["image"] for container in each["spec"]["template"]["spec"]["containers"]],
        )
        for each in found
        if each["metadata"]["name"] != "gpu-scheduler"
    }


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize("page", coming_from(), ids=lambda page: page.stem)
def test_every_command_of_a_page_does_what_the_page_says_and_the_way_back_leads_back(
    scheduling: Scheduling, hosts: Hosts, folder: Path, page: Path
) -> None:
    scheduler, deployed = hosts.manifest.read_text(), _deployed(scheduling)
    reader = Reader(scheduling, folder)
    with Shell(folder, reader.env) as shell:
        for step in steps(page):
            printed = shell.type(reader.here(step.commands))
            where = f"{page.name}:{step.line}"
            assert step.explains(printed), f"{where} shows\n{step.shown}\nand it printed\n{printed}"
            hosts.look()
    assert hosts.manifest.read_text() == scheduler
    assert _deployed(scheduling) == deployed


def test_two_systems_are_led_to_the_pods_of_one_server(scheduling: Scheduling, folder: Path) -> None:
    originals = [*_printed("gpu-admission.yaml"), *_printed("gpushare-schd-extender.yaml")]
    for each in originals:
        scheduling.apply(yaml.safe_dump(each))
    reader = Reader(scheduling, folder)
    with Shell(folder, reader.env) as shell:
        for step in steps(COMING_FROM / "README.md"):
            shell.type(reader.here(step.commands))
    (server,) = (
        each["spec"]["template"]
        for each in scheduling.ask("GET", "/apis/apps/v1/namespaces/kube-system/deployments")["items"]
        if each["metadata"]["name"] in ("gpu-admission", "gpushare-schd-extender")
    )
    words = server["spec"]["containers"][0]["args"]
    assert not any("gpushare" in word or "admission-enabled" in word for word in words)
    for name in ("gpu-admission", "gpushare-schd-extender"):
        service = scheduling.ask("GET", f"/api/v1/namespaces/kube-system/services/{name}")
        assert service["spec"]["selector"].items() <= server["metadata"]["labels"].items(), name
    for path in ("gpu-admission", "gpushare"):
        scheduling.kubectl("delete", "--ignore-not-found", "-f", str(ROOT / "deploy" / path / "server.yaml"))
    for each in originals:
        scheduling.kubectl("delete", "--ignore-not-found", "-f", "-", given=yaml.safe_dump(each))
