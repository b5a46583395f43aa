"""Real kubectl, with its default validation, on an embedded cluster whose pods run by a kubelet of pretence."""

import asyncio
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aliquot.apiserver.objects import Object, key_of, text_at
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import subresources
from aliquot.embedded.api.resources import NODES, PODS
from tests.integration.embedded.kubelet import Kubelet
from tests.rig import programs
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

_EXAMPLE = (Path(__file__).parents[2] / "examples" / "gpushare.yaml").read_text()
_POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: NAME}}
spec:
  containers:
  - {name: main, image: "registry.example/app:1", ports: [{containerPort: 80}]}
  tolerations: [{operator: Exists}]
"""


class _Cluster:
    """The cluster and its kubelet, in a thread with a loop of their own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(30), "the embedded cluster starts"

    def __exit__(self, *_: object) -> None:
        assert self._task is not None
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self) -> None:
        self._task = self._loop.create_task(self._serve())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            return
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        async with EmbeddedCluster() as cluster:
            cluster.write_kubeconfig(self._kubeconfig)
            cluster.registry.create(NODES, "", _node())
            self._ready.set()
            while True:
                _run_pods(cluster)
                await asyncio.sleep(0.05)


def _node() -> Object:
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": "node-1"},
        "status": {"capacity": {"cpu": "8", "pods": "110"}, "conditions": [ready]},
    }


def _run_pods(cluster: EmbeddedCluster) -> None:
    """Bound at once; a Job's pod succeeds, unless its name says that it fails; every other one runs."""
    kubelet = Kubelet(cluster)
    kubelet.finish_deleted()
    for pod in kubelet.pods("Pending"):
        target = {"target": {"kind": "Node", "name": "node-1"}}
        subresources.bind(cluster.registry, *key_of(pod), target)
        of_a_job = "job-name" in (pod["metadata"].get("labels") or {})
        ending = "Failed" if text_at(pod, "metadata", "name").startswith("failing") else "Succeeded"
        kubelet.tell(cluster.registry.get(PODS, *key_of(pod)).obj, ending if of_a_job else "Running")


@pytest.fixture(scope="module")
def kubectl_program(progress: Callable[[str], None]) -> Path:
    return programs.find(progress)["kubectl"]


class Kubectl:
    def __init__(self, program: Path, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._program, self._folder = program, folder

    def __call__(self, *words: str, text: str = "") -> str:
        done = self.run(*words, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str, text: str = "") -> str:
        done = self.run(*words, text=text)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*words), input=text, capture_output=True, text=True, timeout=60, check=False)

    def command(self, *words: str) -> list[str]:
        kept = ["--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self._folder / "cache")]
        return [str(self._program), *kept, *words]


@pytest.fixture(scope="module")
def kubectl(kubectl_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    found = Kubectl(kubectl_program, tmp_path_factory.mktemp("kubectl"))
    with _Cluster(found.kubeconfig):
        yield found


def pod(name: str) -> str:
    return _POD.replace("NAME", name)


def test_get_and_describe(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=pod("seen"))
    kubectl("wait", "--for=condition=Ready", "pod/seen", "--timeout=20s")
    assert re.search(r"seen +\d/1 +Running .* node-1 ", kubectl("get", "pods", "-o", "wide"))
    assert re.search(r"node-1 +Ready", kubectl("get", "nodes"))
    assert re.search(r"Node: +node-1", kubectl("describe", "pod", "seen"))
    assert "seen" in kubectl("describe", "node", "node-1")
    assert '"kind":"PodList"' in kubectl("get", "--raw", "/api/v1/namespaces/default/pods")


def test_apply_creates_changes_and_leaves_alone(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=pod("applied"))
    changed = pod("applied").replace("{app: ", "{tier: front, app: ")
    kubectl("apply", "-f", "-", text=changed)
    assert kubectl("get", "pod", "applied", "-o", "jsonpath={.metadata.labels.tier}") == "front"
    assert "unchanged" in kubectl("apply", "-f", "-", text=changed)
    kubectl("delete", "pod", "applied")


def test_there_is_no_server_side_apply(kubectl: Kubectl) -> None:
    told = kubectl.refused("apply", "--server-side", "-f", "-", text=pod("applied"))
    assert "Server-side apply not available on the server" in told


def test_the_examples_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=_EXAMPLE)
    kubectl("delete", "-f", "-", text=_EXAMPLE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("apply",), 'strict decoding error: unknown field "spec.tolerationz"', id="apply"),
        pytest.param(("create",), 'strict decoding error: unknown field "spec.tolerationz"', id="create"),
    ],
)
def test_a_field_with_a_typo_is_refused(kubectl: Kubectl, words: tuple[str, ...], said: str) -> None:
    odd = pod("odd").replace("tolerations", "tolerationz")
    assert said in kubectl.refused(*words, "-f", "-", text=odd)


def test_a_warning_is_shown_where_only_that_is_asked_for(kubectl: Kubectl) -> None:
    odd = pod("odd").replace("tolerations", "tolerationz")
    done = kubectl.run("apply", "--validate=warn", "-f", "-", text=odd)
    assert 'Warning: unknown field "spec.tolerationz"' in done.stderr
    assert done.returncode == 0
    kubectl("delete", "pod", "odd")


def test_diff_shows_what_would_change(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=pod("compared"))
    done = kubectl.run("diff", "-f", "-", text=pod("compared").replace("{app: ", "{tier: front, app: "))
    assert done.returncode == 1, done.stderr
    assert "+    tier: front" in done.stdout
    kubectl("delete", "pod", "compared")


def test_labels_and_annotations(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=pod("marked"))
    kubectl("label", "pod", "marked", "colour=blue")
    kubectl("annotate", "pod", "marked", "example.com/note=hello")
    assert "marked" in kubectl("get", "pods", "-l", "colour=blue", "-o", "name")
    assert "example.com/note: hello" in kubectl("describe", "pod", "marked")
    kubectl("label", "pod", "marked", "colour-")
    assert kubectl("get", "pods", "-l", "colour=blue", "-o", "name") == ""


def test_an_object_is_edited(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl("create", "configmap", "edited", "--from-literal=size=1")
    monkeypatch.setenv("KUBE_EDITOR", "sed -i 's/size: .*/size: large/'")
    kubectl("edit", "configmap", "edited")
    assert kubectl("get", "configmap", "edited", "-o", "jsonpath={.data.size}") == "large"


def test_a_watch_shows_a_pod_come_and_go(kubectl: Kubectl, tmp_path: Path) -> None:
    seen = tmp_path / "watched"
    with seen.open("wb") as output:
        watching = subprocess.Popen(kubectl.command("get", "pods", "-w"), stdout=output, stderr=subprocess.STDOUT)
    try:
        kubectl("apply", "-f", "-", text=pod("passing"))
        wait_for("the pod to run", lambda: re.search(r"passing +\d/1 +Running", seen.read_text()), seconds=30)
        kubectl("delete", "pod", "passing")
        wait_for("the pod to end", lambda: re.search(r"passing .*Terminating", seen.read_text()), seconds=30)
    finally:
        watching.kill()
        watching.wait()


def test_a_deployment_is_scaled_and_rolled_out_and_back(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=app:1", "--replicas=2")
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/web", "--timeout=30s")
    kubectl("scale", "deploy/web", "--replicas=4")
    kubectl("rollout", "status", "deploy/web", "--timeout=30s")
    assert re.search(r"web +4/4 +4 +4 ", kubectl("get", "deploy", "web"))
    kubectl("set", "image", "deploy/web", "app=app:2")
    kubectl("rollout", "status", "deploy/web", "--timeout=30s")
    kubectl("rollout", "undo", "deploy/web")
    kubectl("rollout", "status", "deploy/web", "--timeout=30s")
    assert len(kubectl("get", "rs", "-o", "name").split()) == 2
    assert kubectl("get", "deploy", "web", "-o", "jsonpath={..image}") == "app:1"
    kubectl("delete", "deploy", "web")
    wait_for("its pods to go", lambda: kubectl("get", "rs,pods", "-l", "app=web", "-o", "name") == "", seconds=30)


@pytest.mark.parametrize(
    ("name", "condition"),
    [pytest.param("counting", "complete", id="ends"), pytest.param("failing", "failed", id="fails")],
)
def test_a_job_runs_to_its_end(kubectl: Kubectl, name: str, condition: str) -> None:
    kubectl("create", "job", name, "--image=app:1", "--", "true")
    kubectl("wait", f"--for=condition={condition}", f"job/{name}", "--timeout=30s")
    assert re.search(rf"{name} +{condition}", kubectl("get", "jobs"), re.IGNORECASE)
    kubectl("delete", "job", name)


def test_a_node_is_drained(kubectl: Kubectl) -> None:
    kubectl("drain", "node-1", "--force", "--timeout=30s")
    assert "SchedulingDisabled" in kubectl("get", "nodes")
    kubectl("uncordon", "node-1")
