"""Our plug-ins under a real kubectl, on a real cluster: as admin, and as a tenant with rights in one namespace."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import pods
from tests.kubectl_commands import tenant_of
from tests.rig import Rig

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("aliquot")]


def kubectl(rig: Rig, kubeconfig: Path, *words: str, code: int = 0) -> tuple[str, str]:
    """What kubectl prints on its two outputs. It finds our programs on the PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "KUBECONFIG": str(kubeconfig)}
    command = [str(rig.kubectl_program), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


@pytest.fixture
def pod(rig: Rig) -> str:
    pods.create(rig, [pods.pod("seen", units=3)])
    pods.wait_running(rig, ["seen"])
    return "seen"


def test_an_admin_sees_cards_pods_and_what_is_wrong(rig: Rig, pod: str, tmp_path: Path) -> None:
    admin = rig.admin_kubeconfig
    ((part,),) = json.loads(pods.get(rig, pod)["metadata"]["annotations"]["aliquot.io/placement"])[
        "containers"
    ].values()

    report = json.loads(kubectl(rig, admin, "gpu", "nodes", "-o", "json")[0])
    (node,) = (each for each in report["nodes"] if each["cards"])
    (card,) = (each for each in node["cards"] if each["pods"])
    assert (card["index"], card["pods"], card["allocatedMemoryMib"]) == (part["index"], [f"default/{pod}"], 3072)
    assert (node["ready"], node["agent"], node["silentSeconds"]) == (True, "aliquot", None)

    shown = kubectl(rig, admin, "gpu", "pods", "--no-headers")[0].split()
    assert shown[:6] == [pod, "Running", node["name"], str(part["index"]), "0%", "3.0"]
    inspected = kubectl(rig, admin, "inspect", "gpushare", "-d")[0]
    assert [line.split()[:2] for line in inspected.splitlines() if line.startswith(f"{pod} ")] == [[pod, "default"]]

    findings = json.loads(kubectl(rig, admin, "gpu", "doctor", "-o", "json")[0])["findings"]
    levels = {finding["check"]: finding["level"] for finding in findings}
    assert {levels[check] for check in ("server", "agents", "two plugins", "units", "rights")} == {"ok"}, findings

    target = f"{node['name']}/{part['index']}"
    kubectl(rig, admin, "gpu", "cordon", target)
    cards = kubectl(rig, admin, "gpu", "nodes", node["name"], "--no-headers")[0]
    assert cards.count("Cordoned") == 1
    kubectl(rig, admin, "gpu", "uncordon", target)
    assert "Cordoned" not in kubectl(rig, admin, "gpu", "nodes", node["name"])[0]

    archive = str(tmp_path / "dump.tar.gz")
    kubectl(rig, admin, "gpu", "dump", archive)
    assert kubectl(rig, admin, "gpu", "pods", "--from", archive, "--no-headers")[0].split()[:2] == [pod, "Running"]
    assert kubectl(rig, admin, "__complete", "gpu", "no")[0].splitlines()[0] == "nodes"


def test_a_tenant_sees_the_pods_of_one_namespace(rig: Rig, pod: str) -> None:
    rig.apply(tenant_of("default"))
    tenant = rig.service_account_kubeconfig("default", "tenant")
    out, err = kubectl(rig, tenant, "gpu", "pods", "--no-headers")
    ((part,),) = json.loads(pods.get(rig, pod)["metadata"]["annotations"]["aliquot.io/placement"])[
        "containers"
    ].values()
    assert out.split()[:2] == [pod, "Running"]
    assert part["uuid"] in out
    assert err.startswith("note: only pods of namespace default are counted\n")

    _, err = kubectl(rig, tenant, "gpu", "nodes", code=1)
    assert err.startswith("error: you may not list nodes")
    _, err = kubectl(rig, tenant, "gpu", "pods", "-n", "kube-system", code=1)
    assert err.startswith("error: pods is forbidden")
    _, err = kubectl(rig, tenant, "gpu", "cordon", "n/0", code=1)
    assert "forbidden" in err
    out, _ = kubectl(rig, tenant, "gpu", "doctor")
    assert "UNKNOWN agents: you may not read nodes and leases" in out
