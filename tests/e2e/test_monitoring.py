"""The runbook's commands on a real cluster, and a real Prometheus that scrapes a server and an agent at work."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e import pods
from tests.integration.monitoring.prometheus import scraping
from tests.rig import Rig, debian
from tests.rig.aliquot import Aliquot
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

RUNBOOK = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()
SERVER = "http://127.0.0.1:12341"
LABELS = {"app.kubernetes.io/name": "aliquot", "app.kubernetes.io/component": "server"}


@pytest.fixture
def deployed(rig: Rig) -> Iterator[None]:
    """A Deployment with the name of our server, for the commands that ask for its pods and logs: the rig's server is a
    process."""
    template = {"metadata": {"labels": LABELS}, "spec": pods.pod("any", limits={"cpu": "10m"})["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template}
    metadata = {"name": "aliquot-server", "namespace": "aliquot-system"}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    rig.kubectl("create", "-f", "-", input=json.dumps(deployment))
    rig.kubectl("-n", "aliquot-system", "rollout", "status", "deployment/aliquot-server", "--timeout=60s")
    yield
    rig.kubectl("-n", "aliquot-system", "delete", "deployment", "aliquot-server", "--cascade=foreground")


@pytest.fixture
def quotas(rig: Rig) -> Iterator[None]:
    rig.kubectl("-n", "kube-system", "create", "configmap", "gpuquota", "--from-literal=gpu_quota={}")
    yield
    rig.kubectl("-n", "kube-system", "delete", "configmap", "gpuquota")


@pytest.mark.usefixtures("deployed", "quotas")
def test_every_command_of_the_runbook_works(rig: Rig, aliquot: Aliquot, tmp_path: Path) -> None:
    """Each as it is printed, but for names and addresses: first all that look, then all that change something."""
    (tmp_path / "kubectl").symlink_to(rig.kubectl_program)
    (tmp_path / "config.yaml").write_text("mode: active\n")
    environment = os.environ | {
        "PATH": f"{tmp_path}:{Path('.venv/bin').resolve()}:{os.environ['PATH']}",
        "KUBECONFIG": str(rig.admin_kubeconfig),
        "KUBECACHEDIR": str(tmp_path / "cache"),
    }
    blocks = re.findall(r"```sh\n(.*?)```", RUNBOOK, re.DOTALL)
    checks = sorted({line for block in blocks for line in block.splitlines()})
    remedies = re.findall(r"`(kubectl [^`]+)`", RUNBOOK)
    assert (len(checks) > 30, len(remedies) > 4) == (True, True)
    gone = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gone"}}
    rig.kubectl("create", "-f", "-", input=json.dumps(gone))
    failed = []
    for command in [*checks, *remedies, "kubectl gpu uncordon NODE/0"]:
        here = command.replace(SERVER, aliquot.native_url).replace("NODE", rig.node_name).replace("GONE", "gone")
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {here}"], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        if done.returncode != 0:
            failed.append((command, done.stdout, done.stderr))
    assert failed == []


async def test_prometheus_reads_what_a_real_pod_holds_and_what_the_driver_shows(
    rig: Rig, aliquot: Aliquot, progress: Callable[[str], None], tmp_path: Path
) -> None:
    pods.create(rig, [pods.pod("counted", units=3)])
    pods.wait_running(rig, ["counted"])
    ((part,),) = json.loads(pods.get(rig, "counted")["metadata"]["annotations"]["aliquot.io/placement"])[
        "containers"
    ].values()
    card = rig.nvml.gpus[part["index"]]
    targets = {"aliquot": aliquot.native_url, "aliquot-agent": aliquot.agent_url}
    places = {job: urlsplit(url).netloc for job, url in targets.items()}
    async with scraping(debian.prometheus(progress), tmp_path, places) as prometheus:
        labels = f'{{namespace="default",node="{rig.node_name}",pod="counted"}}'
        assert await prometheus.value(f"aliquot_pod_allocated_memory_bytes{labels}") == 3 * 2**30
        share = await prometheus.value(f"aliquot_pod_allocated_cards{labels}")
        assert share == pytest.approx(3 * 1024 / card.mib)
        held = await prometheus.value(f'aliquot_card_allocated_ratio{{uuid="{card.uuid}"}}')
        assert held == share
        assert await prometheus.value("aliquot_silent_agents") == 0
        assert await prometheus.value(f'aliquot_card_healthy{{uuid="{card.uuid}"}}') == 1
        assert await prometheus.value("sum(aliquot_namespace_pods)") == 1
    pods.delete_all(rig)
    wait_for("the pod's part to be free", lambda: "counted" not in _metrics(aliquot), seconds=30)


def _metrics(aliquot: Aliquot) -> str:
    return subprocess.run(["curl", "-sf", f"{aliquot.native_url}/metrics"], capture_output=True, text=True).stdout
