"""The originals' own manifests on a real cluster, with nothing changed but the image.

Where one cannot work as printed on a current Kubernetes, the test shows what works without any correction, then the
smallest correction, and that all works with it.
"""

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checker import findings
from tests.e2e import image, pods, volcano_pod
from tests.e2e.originals import Manifest
from tests.real.scheduler import DEPLOY, pointed_at
from tests.rig import Image, Rig, RigError, programs, wait_for
from tests.rig.aliquot import Aliquot
from tests.rig.waiting import answers

pytestmark = pytest.mark.e2e

ORIGINALS = Path(__file__).with_name("originals")
SCHEDULER_IMAGE = "docker.io/local/kube-scheduler:1"
CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"

# what system:kube-scheduler lacks: placements are patched onto pods, quotas are read from ConfigMaps
MORE_RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: gpu-admission}
rules:
- {apiGroups: [""], resources: [pods], verbs: [patch]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: gpu-admission}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: gpu-admission}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: system:kube-scheduler}
"""


@pytest.fixture(scope="module")
def own(progress: Callable[[str], None], images: Path) -> Iterator[Rig]:
    """A cluster of its own: the manifests use fixed ports and names. Its agent serves both vocabularies."""
    labels = {"gpushare": "true", "nvidia-device-enable": "enable"}
    with Rig.up(progress=progress, node_name="image-node", labels=labels) as rig:
        rig.load_archive(images)
        rig.load_images([_scheduler_image(progress)])
        rig.write_scheduler_conf()
        rig.serve_services()
        aliquot = Aliquot(rig)
        aliquot.start_agent(dialects=["gpushare", "tencent"])
        yield rig


@pytest.fixture(autouse=True)
def no_pods(own: Rig) -> Iterator[None]:
    before = own.scheduler.configuration
    yield
    pods.delete_all(own)
    own.restart_scheduler(before)


@pytest.fixture
def apply(own: Rig) -> Iterator[Callable[[Manifest], None]]:
    applied: list[Manifest] = []

    def apply(manifest: Manifest) -> None:
        applied.append(manifest)
        manifest.apply(own)

    yield apply
    for manifest in applied:
        manifest.delete(own)


Apply = Callable[[Manifest], None]


# -- gpushare-schd-extender


@pytest.fixture
def gpushare() -> Manifest:
    return Manifest("gpushare-schd-extender.yaml").with_image(
        "gpushare-schd-extender", image.name("gpushare-schd-extender")
    )


def test_gpushares_extender_waits_for_a_node_that_is_labelled_master(
    own: Rig, apply: Apply, gpushare: Manifest
) -> None:
    """The label went with Kubernetes 1.24. Everything else of the manifest is taken as it is."""
    apply(gpushare)
    why = "didn't match Pod's node affinity/selector"
    wait_for(
        "the reason why the extender waits",
        lambda: why in _condition(_pod(own, "kube-system", "app=gpushare"), "PodScheduled"),
        seconds=60,
    )


@pytest.mark.usefixtures("master")
def test_gpushares_extender_schedules_a_pod_where_the_label_is_given(
    own: Rig, apply: Apply, gpushare: Manifest
) -> None:
    """The manifest is untouched: its own account and rights, its own port, no command."""
    apply(gpushare)
    _wait_available(own, "kube-system", "gpushare-schd-extender")
    _wait_ready(own, "http://127.0.0.1:32766", "kube-system", "gpushare-schd-extender")
    own.restart_scheduler(_as_configuration("scheduler-policy-config.json"))
    pods.create(own, [pods.pod("first", units=3), pods.pod("second", units=8), pods.pod("too-large", units=16)])
    pods.wait_running(own, ["first", "second"])
    assert findings(pods.observe(own), ["default/first", "default/second"]) == []
    annotations = pods.get(own, "first")["metadata"]["annotations"]
    assert annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
    assert annotations["ALIYUN_COM_GPU_MEM_POD"] == "3"
    why = "Insufficient GPU Memory in one device"
    wait_for("the reason", lambda: why in _condition(pods.get(own, "too-large"), "PodScheduled"), seconds=30)


@pytest.fixture
def master(own: Rig) -> Iterator[None]:
    own.kubectl("label", "node", own.node_name, "node-role.kubernetes.io/master=")
    yield
    own.kubectl("label", "node", own.node_name, "node-role.kubernetes.io/master-")


# -- gpu-admission with kube-scheduler


@pytest.fixture
def admission() -> Manifest:
    return (
        Manifest("gpu-admission.yaml")
        .with_image("gpu-admission", image.name("gpu-admission"))
        .with_image("kube-second-scheduler", SCHEDULER_IMAGE)
    )


@pytest.fixture
def more_rights(own: Rig) -> Iterator[None]:
    own.apply(MORE_RIGHTS)
    yield
    own.kubectl("delete", "-f", "-", input=MORE_RIGHTS)


def test_gpu_admission_as_printed_filters_but_may_not_write_placements(
    own: Rig, apply: Apply, admission: Manifest
) -> None:
    """It finds the mounted scheduler.conf, which the manifest names nowhere; kube-scheduler's account may bind pods and
    not patch them. So pods go to the right node, and wait there for a placement until the right is given."""
    apply(admission)
    _wait_available(own, "kube-system", "gpu-admission")
    url = f"http://{_address(own, 'kube-system', 'gpu-admission')}:3456"
    _wait_ready(own, url, "kube-system", "gpu-admission")
    assert "may not patch pods" in _read(f"{url}/readyz")
    own.restart_scheduler(_gpu_scheduler(admission, url))
    pods.create(own, [_vcuda("fits", 20, 4), _vcuda("too-large", 50, 1000)])
    wait_for("the pod to be bound", lambda: pods.get(own, "fits")["spec"].get("nodeName"), seconds=60)
    assert wait_for("the reason", lambda: _condition(pods.get(own, "too-large"), "PodScheduled"), seconds=30)
    wait_for("the agent's refusal", lambda: "without a placement" in _waiting(pods.get(own, "fits")), seconds=60)
    own.apply(MORE_RIGHTS)
    try:
        pods.wait_running(own, ["fits"], seconds=150)
    finally:
        own.kubectl("delete", "-f", "-", input=MORE_RIGHTS)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        pytest.param({}, "kubescheduler.config.k8s.io/v1beta2", id="as printed"),
        # beside --config, kube-scheduler does not look at --kubeconfig
        pytest.param(
            {"apiVersion": "kubescheduler.config.k8s.io/v1"},
            'User "system:serviceaccount:kube-system:default" cannot list resource "nodes"',
            id="version corrected",
        ),
    ],
)
def test_gpu_admissions_second_scheduler_needs_two_corrections_of_its_configuration(
    own: Rig, apply: Apply, admission: Manifest, changes: dict[str, Any], complaint: str
) -> None:
    _change_configuration(admission, changes)
    apply(admission)
    # both Deployments have the same selector, so pods are told apart by a label that only one of them has
    words = ["logs", "--namespace=kube-system", "--selector=component=scheduler,!app", "--tail=-1"]
    wait_for(
        "kube-scheduler's complaint",
        lambda: complaint in own.kubectl(*words, check=False).replace('\\"', '"'),
        seconds=60,
    )


@pytest.mark.usefixtures("more_rights")
def test_gpu_admission_schedules_a_pod_with_three_corrections(own: Rig, apply: Apply, admission: Manifest) -> None:
    """The configuration's version, the kubeconfig that --config takes from nowhere else, and the right to patch."""
    kubeconfig = {"kubeconfig": "/etc/kubernetes/scheduler.conf"}
    _change_configuration(admission, {"apiVersion": "kubescheduler.config.k8s.io/v1", "clientConnection": kubeconfig})
    apply(admission)
    for name in ("gpu-admission", "gpu-scheduler"):
        _wait_available(own, "kube-system", name)
    pods.create(own, [_vcuda("part", 20, 4), _vcuda("whole", 100, 1)])
    pods.wait_running(own, ["part", "whole"])
    assert findings(pods.observe(own), ["default/part", "default/whole"]) == []
    annotations = pods.get(own, "part")["metadata"]["annotations"]
    assert annotations["tencent.com/predicate-node"] == own.node_name


# -- gpu-admission with Volcano


@pytest.fixture
def volcano(own: Rig) -> Iterator[Manifest]:
    """Its namespace is in no manifest."""
    own.kubectl("create", "namespace", "kube-stack")
    yield Manifest("gpu-admission-volcano.yaml").with_image("gpu-scheduler", image.name("gpu-admission"))
    own.kubectl("delete", "namespace", "kube-stack", "--timeout=90s")


def test_gpu_admission_for_volcano_answers_through_its_service(own: Rig, apply: Apply, volcano: Manifest) -> None:
    apply(volcano)
    _wait_available(own, "kube-stack", "gpu-scheduler")
    url = f"http://{_address(own, 'kube-stack', 'gpu-scheduler')}:3456"
    _wait_ready(own, url, "kube-stack", "gpu-scheduler")
    node = json.loads(own.kubectl("get", "node", own.node_name, "--output=json"))
    for name, memory, code in (("fits", 4, 0), ("too-large", 1000, 3)):
        pods.create(own, [_vcuda(name, 20, memory, scheduler="volcano")])
        pod = pods.get(own, name)
        task = {"UID": pod["metadata"]["uid"], "Name": name, "Namespace": "default", "TaskRole": "", "Pod": pod}
        body = {"task": task, "node": {"Name": own.node_name, "Node": node, "Capacity": {}, "Tasks": {}}}
        assert json.loads(_read(f"{url}/scheduler/vpredicates", body))["code"] == code


@pytest.mark.usefixtures("more_rights")
def test_volcano_places_a_gang_through_the_service_by_its_name(
    own: Rig, apply: Apply, volcano: Manifest, progress: Callable[[str], None]
) -> None:
    """Volcano's configuration names the Service as printed; the one correction is the right to patch pods."""
    apply(volcano)
    _wait_available(own, "kube-stack", "gpu-scheduler")
    tier = yaml.safe_load((ORIGINALS / "volcano-plugins.yaml").read_text())
    with volcano_pod.scheduling(own, tier, progress):
        volcano_pod.group(own, "gang", members=2)
        gang = [_vcuda(name, 60, 4, scheduler="volcano") for name in ("one", "two")]
        for pod in gang:
            pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "gang"}
        pods.create(own, gang)
        pods.wait_running(own, ["one", "two"])
        assert findings(pods.observe(own), ["default/one", "default/two"]) == []
        pods.delete_all(own)


# our own


def test_our_own_server_runs_without_root_on_a_read_only_file_system(own: Rig, apply: Apply, tmp_path: Path) -> None:
    """deploy/native/server.yaml as it is shipped, with the certificates of deploy/certificates.sh: all replicas become
    ready, and its Service schedules a pod, whichever replica is asked."""
    subprocess.run([DEPLOY / "certificates.sh", tmp_path], check=True)
    files = [f"--from-file={tmp_path / name}" for name in ("ca.crt", "tls.crt", "tls.key")]
    own.kubectl("create", "secret", "generic", "aliquot-tls", "--namespace=aliquot-system", *files)
    apply(Manifest(DEPLOY / "native" / "server.yaml"))
    _wait_available(own, "aliquot-system", "aliquot-server")
    look = "import os; print(os.getuid(), bool(os.statvfs('/').f_flag & os.ST_RDONLY))"
    words = ["exec", "--namespace=aliquot-system", "deployment/aliquot-server", "--", "python3", "-c", look]
    assert own.kubectl(*words).split() == ["65532", "True"]
    url = f"https://{_address(own, 'aliquot-system', 'aliquot')}:12340"
    config = yaml.safe_dump(pointed_at(DEPLOY / "native" / "kube-scheduler.yaml", url))
    own.restart_scheduler(config.replace("/etc/kubernetes/scheduler", str(tmp_path)))
    names = ["first", "second", "third"]
    pods.create(own, [pods.pod(name, units=3) for name in names])
    pods.wait_running(own, names)
    assert findings(pods.observe(own), [f"default/{name}" for name in names]) == []


def _vcuda(name: str, core: int, memory: int, scheduler: str = "gpu-scheduler") -> dict[str, Any]:
    """A pod as gpu-manager's users write it."""
    made = pods.pod(name, schedulerName=scheduler)
    wanted = {CORE: str(core), MEMORY: str(memory)}
    made["spec"]["containers"][0]["resources"] = {"limits": wanted, "requests": wanted}
    return made


def _as_configuration(policy: str) -> dict[str, Any]:
    """A policy file, gone with 1.23, in the form that came after it."""
    extenders = json.loads((ORIGINALS / policy).read_text())["extenders"]
    for extender in extenders:
        extender["enableHTTPS"] = extender.pop("enableHttps")
    return {"extenders": extenders}


def _change_configuration(admission: Manifest, changes: dict[str, Any]) -> None:
    """Of the second scheduler."""
    held = admission.of("ConfigMap", "gpu-scheduler-config")["data"]
    printed = yaml.safe_load(held["gpu-scheduler-config.yaml"])
    held["gpu-scheduler-config.yaml"] = yaml.safe_dump(printed | changes)


def _gpu_scheduler(admission: Manifest, url: str) -> dict[str, Any]:
    """The second scheduler's configuration for a kube-scheduler that runs already."""
    printed = yaml.safe_load(admission.of("ConfigMap", "gpu-scheduler-config")["data"]["gpu-scheduler-config.yaml"])
    (extender,) = printed["extenders"]
    return {"profiles": printed["profiles"], "extenders": [extender | {"urlPrefix": f"{url}/scheduler"}]}


def _scheduler_image(progress: Callable[[str], None]) -> Image:
    program = programs.find(progress)["kube-scheduler"]
    return Image(SCHEDULER_IMAGE, {"bin/kube-scheduler": program})


def _pod(rig: Rig, namespace: str, selector: str) -> dict[str, Any]:
    listed = rig.kubectl("get", "pods", f"--namespace={namespace}", f"--selector={selector}", "--output=json")
    items: list[dict[str, Any]] = json.loads(listed)["items"]
    return items[0] if items else {"status": {}}


def _wait_available(rig: Rig, namespace: str, deployment: str) -> None:
    words = [
        "wait",
        "--for=condition=Available",
        f"deployment/{deployment}",
        f"--namespace={namespace}",
        "--timeout=90s",
    ]
    try:
        rig.kubectl(*words)
    except RigError as error:
        raise RigError(f"{error}\n{_told(rig, namespace, deployment)}") from error


def _wait_ready(rig: Rig, url: str, namespace: str, deployment: str) -> None:
    try:
        wait_for(f"{url} to be ready", lambda: answers(f"{url}/readyz"), seconds=60)
    except RigError as error:
        raise RigError(f"{error}\n{_told(rig, namespace, deployment)}") from error


def _told(rig: Rig, namespace: str, deployment: str) -> str:
    told = rig.kubectl("describe", "pods", f"--namespace={namespace}", check=False)
    logs = rig.kubectl("logs", f"deployment/{deployment}", f"--namespace={namespace}", "--all-pods", check=False)
    return f"{told[-3000:]}\n{logs[-3000:]}"


def _address(rig: Rig, namespace: str, service: str) -> str:
    words = ["get", "service", service, f"--namespace={namespace}", "--output=jsonpath={.spec.clusterIP}"]
    return rig.kubectl(*words)


def _read(url: str, body: dict[str, Any] | None = None) -> str:
    asked = urllib.request.Request(url, json.dumps(body).encode() if body else None)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(asked, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def _condition(pod: dict[str, Any], kind: str) -> str:
    texts = [each.get("message", "") for each in pod["status"].get("conditions", []) if each["type"] == kind]
    return "".join(texts)


def _waiting(pod: dict[str, Any]) -> str:
    statuses = pod["status"].get("containerStatuses", [])
    return "".join(status["state"].get("waiting", {}).get("message", "") for status in statuses)
