"""Real kubectl on the cluster that `aliquot demo` prints a kubeconfig for."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rig import programs
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

_ALIQUOT = Path(sys.executable).with_name("aliquot")
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The demo, staying as on a terminal, until the module's tests are done."""
    printed = tmp_path_factory.mktemp("demo") / "printed"
    with printed.open("wb") as output:
        demo = subprocess.Popen([_ALIQUOT, "demo", "--stay", "--no-stream"], stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_for("the demo's table", lambda: "is back." in printed.read_text(), seconds=60)
        found = re.search(r"kubeconfig +(\S+)", printed.read_text())
        assert found is not None
        yield found[1]
        demo.send_signal(signal.SIGINT)
        assert demo.wait(20) == 0, printed.read_text()
        assert not Path(found[1]).exists(), "the demo removes what it made"
    finally:
        demo.kill()
        demo.wait()


@pytest.fixture(scope="module")
def kubectl_program(progress: Callable[[str], None]) -> Path:
    return programs.find(progress)["kubectl"]


@pytest.fixture(scope="module")
def kubectl(kubectl_program: Path, kubeconfig: str) -> Kubectl:
    def run(*words: str, text: str = "") -> str:
        command = [str(kubectl_program), "--kubeconfig", kubeconfig, *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def example(name: str) -> str:
    return str(Path(__file__).parents[2] / "examples" / f"{name}.yaml")


def second(**changes: str) -> str:
    """The gpushare example under another name, or with other changes."""
    text = Path(example("gpushare")).read_text().replace("name: binpack-1", "name: second")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture
def pod(kubectl: Kubectl) -> Iterator[str]:
    """A pod that runs, and is gone after the test."""
    kubectl("create", "-f", "-", text=second())
    wait_for("the pod to run", lambda: phase(kubectl, "second") == "Running", seconds=30)
    yield "second"
    kubectl("delete", "pod", "second", "--ignore-not-found")


def phase(kubectl: Kubectl, name: str, namespace: str = "default") -> str:
    return kubectl("get", "pod", name, "-n", namespace, "-o", "jsonpath={.status.phase}")


def test_get_shows_nodes_and_pods(kubectl: Kubectl) -> None:
    shown = kubectl("get", "nodes,pods", "-A", "-o", "wide")
    for number in range(1, 9):
        assert re.search(rf"node/gpu-{number} +Ready", shown)
    assert re.search(r"default +pod/binpack-1 +1/1 +Running +0 .* gpu-1 ", shown)
    assert re.search(r"userpod +pod/nbody-benchmark-mps-test-\w+ +1/1 +Running", shown)


def test_get_shows_what_the_samples_pods_came_from(kubectl: Kubectl) -> None:
    assert re.search(r"cuda-gpu-test +1/1", kubectl("get", "deployments"))
    assert re.search(r"nbody-benchmark-mps-test +Running +0/1", kubectl("get", "jobs", "-n", "userpod"))


def test_get_by_label_finds_the_pod(kubectl: Kubectl) -> None:
    assert kubectl("get", "pods", "-l", "app=binpack-1", "-o", "name") == "pod/binpack-1\n"


def test_describe_shows_the_placement_and_the_events(kubectl: Kubectl) -> None:
    shown = kubectl("describe", "pod", "binpack-1")
    assert re.search(r"ALIYUN_COM_GPU_MEM_ASSIGNED: +true", shown)
    assert "aliquot.io/placement" in shown
    assert re.search(r"aliyun.com/gpu-mem: +3", shown)
    assert re.search(r"Normal +Scheduled .* Successfully assigned default/binpack-1 to gpu-1", shown)


def test_describe_shows_what_a_node_has_and_who_is_on_it(kubectl: Kubectl) -> None:
    shown = kubectl("describe", "node", "gpu-7")
    assert re.search(r"nvidia.com/gpu: +2", shown)
    assert re.search(r"nvidia.com/mig-1g.10gb: +2", shown)
    assert "one-whole-gpu" in shown


def test_apply_makes_a_pod_and_a_second_apply_changes_nothing(kubectl: Kubectl, pod: str) -> None:
    kubectl("delete", "pod", pod)
    assert "created" in kubectl("apply", "-f", "-", text=second())
    wait_for("the pod to run", lambda: phase(kubectl, pod) == "Running", seconds=30)
    assert "unchanged" in kubectl("apply", "-f", "-", text=second())


def test_apply_refuses_a_field_that_there_is_not(kubectl_program: Path, kubeconfig: str) -> None:
    """kubectl's default validation works: the founding document's typing error is caught."""
    command = [str(kubectl_program), "--kubeconfig", kubeconfig, "apply", "-f", "-"]
    text = second(**{"resources:": "resources::"})
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert 'unknown field "spec.containers[0].resources:"' in done.stderr


def test_label_and_annotate_change_a_pod_that_runs(kubectl: Kubectl, pod: str) -> None:
    kubectl("label", "pod", pod, "team=vision")
    kubectl("annotate", "pod", pod, "note=hello")
    assert kubectl("get", "pods", "-l", "team=vision", "-o", "name") == f"pod/{pod}\n"
    assert kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.annotations.note}") == "hello"
    kubectl("label", "pod", pod, "team-")
    assert kubectl("get", "pods", "-l", "team=vision", "-o", "name") == ""
    assert phase(kubectl, pod) == "Running"


def test_delete_removes_a_pod_and_waits_for_it(kubectl: Kubectl, pod: str) -> None:
    assert "deleted" in kubectl("delete", "pod", pod)
    assert kubectl("get", "pod", pod, "--ignore-not-found") == ""


def test_watch_shows_a_pod_come_and_go(
    kubectl: Kubectl, kubectl_program: Path, kubeconfig: str, tmp_path: Path
) -> None:
    seen = tmp_path / "watched"
    command = [str(kubectl_program), "--kubeconfig", kubeconfig, "get", "pods", "-w"]
    with seen.open("wb") as output:
        watching = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_for("the first line of the watch", lambda: "binpack-1" in seen.read_text(), seconds=30)
        kubectl("create", "-f", "-", text=second())
        wait_for("the new pod to run", lambda: re.search(r"second +1/1 +Running", seen.read_text()), seconds=30)
        kubectl("delete", "pod", "second")
        wait_for("the pod to end", lambda: re.search(r"second .*Terminating", seen.read_text()), seconds=30)
    finally:
        watching.kill()
        watching.wait()


def test_get_raw_answers_as_the_api_server_does(kubectl: Kubectl) -> None:
    assert json.loads(kubectl("get", "--raw", "/api/v1/nodes/gpu-1"))["kind"] == "Node"
    pods = json.loads(kubectl("get", "--raw", "/api/v1/namespaces/default/pods?limit=2"))
    assert (pods["kind"], len(pods["items"])) == ("PodList", 2)
    assert "gitVersion" in json.loads(kubectl("get", "--raw", "/version"))


def test_annotate_cannot_forge_a_placement(kubectl_program: Path, kubeconfig: str) -> None:
    command = [str(kubectl_program), "--kubeconfig", kubeconfig, "annotate", "--overwrite", "pod", "binpack-1"]
    forged = [*command, "aliquot.io/placement={}"]
    done = subprocess.run(forged, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "may not write aliquot.io/placement" in done.stderr


def test_a_pod_that_fits_nowhere_says_why(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", example("gpushare-waits"))
    wait_for(
        "the reason",
        lambda: "Insufficient GPU Memory in one device" in kubectl("describe", "pod", "waits"),
        seconds=30,
    )
    kubectl("delete", "-f", example("gpushare-waits"))


def test_a_pod_ends_as_its_script_says(kubectl: Kubectl) -> None:
    text = Path(example("demo-script")).read_text().replace("runs 30s", "runs 1s")
    kubectl("apply", "-f", "-", text=text)
    wait_for("the end", lambda: phase(kubectl, "scripted") == "Failed", seconds=30)
    assert re.search(r"Exit Code: +137", kubectl("describe", "pod", "scripted"))
    kubectl("delete", "pod", "scripted")


def test_a_pod_of_a_deployment_that_is_deleted_comes_again(kubectl: Kubectl) -> None:
    before = kubectl("get", "pods", "-l", "app=gpu-test", "-o", "name")
    kubectl("delete", before.strip())
    wait_for(
        "another pod to run",
        lambda: re.search(r"^(?!" + before.strip().removeprefix("pod/") + r")\S+ +1/1 +Running", shown(kubectl)),
        seconds=30,
    )


def shown(kubectl: Kubectl) -> str:
    return kubectl("get", "pods", "-l", "app=gpu-test", "--no-headers")
