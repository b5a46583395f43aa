"""Real kubectl on the cluster that `aliquot demo` prints a kubeconfig for."""

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
        demo = subprocess.Popen([_ALIQUOT, "demo", "--stay"], stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_for("the demo's table", lambda: "default/binpack-1" in printed.read_text(), seconds=60)
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


def test_get_shows_nodes_and_pods(kubectl: Kubectl) -> None:
    shown = kubectl("get", "nodes,pods", "-A", "-o", "wide")
    assert re.search(r"node/gpu-1 +Ready", shown)
    assert re.search(r"default +pod/binpack-1 +1/1 +Running +0 .* gpu-1 ", shown)


def test_describe_shows_the_placement(kubectl: Kubectl) -> None:
    shown = kubectl("describe", "pod", "binpack-1")
    assert re.search(r"ALIYUN_COM_GPU_MEM_ASSIGNED: +true", shown)
    assert "aliquot.io/placement" in shown
    assert re.search(r"aliyun.com/gpu-mem: +3", shown)


def test_watch_shows_a_pod_come_and_go(
    kubectl: Kubectl, kubectl_program: Path, kubeconfig: str, tmp_path: Path
) -> None:
    seen = tmp_path / "watched"
    command = [str(kubectl_program), "--kubeconfig", kubeconfig, "get", "pods", "-w"]
    with seen.open("wb") as output:
        watching = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_for("the first line of the watch", lambda: "binpack-1" in seen.read_text(), seconds=30)
        example = Path(__file__).parents[2] / "examples" / "gpushare.yaml"
        kubectl("create", "-f", "-", text=example.read_text().replace("name: binpack-1", "name: second"))
        wait_for("the new pod to run", lambda: re.search(r"second +1/1 +Running", seen.read_text()), seconds=30)
        kubectl("delete", "pod", "second")
        wait_for("the pod to end", lambda: re.search(r"second .*Terminating", seen.read_text()), seconds=30)
    finally:
        watching.kill()
        watching.wait()


def test_a_pod_that_fits_nowhere_says_why(kubectl: Kubectl) -> None:
    example = (Path(__file__).parents[2] / "examples" / "gpushare.yaml").read_text()
    large = example.replace("name: binpack-1", "name: too-large").replace('gpu-mem: "3"', 'gpu-mem: "81"')
    kubectl("apply", "-f", "-", text=large)
    wait_for(
        "the reason",
        lambda: "Insufficient GPU Memory in one device" in kubectl("describe", "pod", "too-large"),
        seconds=30,
    )
    kubectl("delete", "pod", "too-large")
