"""The agent as pods of a DaemonSet on the real kubelet: the originals' manifests with only the image changed, and ours.

NVIDIA's container runtime is not on the rig's node. It would give the originals' pods the library and the device nodes,
since the image asks for them; here a further layer and variables of the image do that.
"""

import json
import os
import platform
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.checker import findings
from tests.e2e import image, pods
from tests.e2e.originals import Manifest
from tests.rig import Rig, RigError, devices, nvml, wait_for
from tests.rig.aliquot import Aliquot

pytestmark = pytest.mark.e2e

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "aliquot-system"
DRIVER = "run/nvidia/driver/usr/lib64"
"""Where the driver container of NVIDIA's GPU Operator has its libraries, on the node."""
CORE = "tencent.com/vcuda-core"


@pytest.fixture(scope="module")
def own(progress: Callable[[str], None], images: Path) -> Iterator[Rig]:
    """A cluster with Aliquot's server and policies, whose node has a driver container and no agent yet."""
    with Rig.up(progress=progress, node_name="daemon-node") as rig:
        rig.load_archive(images)
        rig.serve_services()
        driver = rig.node_etc.parent / DRIVER
        driver.mkdir(parents=True)
        nvml.build(driver)
        aliquot = Aliquot(rig)
        rig.apply(DEPLOY / "policies.yaml")
        aliquot.start_server()
        rig.restart_scheduler(aliquot.scheduler_config())
        yield rig


GPUSHARE, ELASTIC, MANAGER = "gpushare-device-plugin-v2", "elastic-gpu-agent", "gpu-manager"
IN_PLUGINS_FOLDER = "nodes-of-cards"
"""The one folder of the node that the originals' manifests mount has the device nodes, too."""


@pytest.fixture(scope="module")
def beside_nvidias_runtime(own: Rig, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """The same, with images that find NVML and the cards without a mount."""
    folder = own.device_plugins / IN_PLUGINS_FOLDER
    devices.make(folder, [gpu.minor for gpu in own.nvml.gpus])
    shutil.copy(own.nvml.file, folder)
    inside = Path("/var/lib/kubelet/device-plugins", IN_PLUGINS_FOLDER)
    environment = {"ALIQUOT_DEV_FOLDER": str(inside), "FAKE_NVML_FILE": str(inside / own.nvml.file.name)}
    library = nvml.build(tmp_path_factory.mktemp("nvml"))
    files = {f"usr/lib/{platform.machine()}-linux-gnu/{library.name}": library}
    for program in (GPUSHARE, ELASTIC, MANAGER):
        archive = tmp_path_factory.mktemp(program) / "image.tar"
        archive.write_bytes(image.with_more(images, program, files, environment))
        own.load_archive(archive)
    return own


@contextmanager
def running(rig: Rig, manifest: Manifest, label: str) -> Iterator[None]:
    rig.kubectl("label", "node", rig.node_name, label)
    manifest.apply(rig)
    try:
        yield
    finally:
        pods.delete_all(rig)
        manifest.delete(rig)
        rig.kubectl("label", "node", rig.node_name, f"{label.partition('=')[0]}-")


def told(rig: Rig, daemon_set: str) -> str:
    return rig.kubectl("logs", "--namespace=kube-system", f"daemonset/{daemon_set}", "--all-containers", check=False)


def test_gpushares_own_daemon_set_serves_a_pod_with_only_the_image_changed(beside_nvidias_runtime: Rig) -> None:
    """Without CDI, without PodResources, without capabilities, with the original's account."""
    rig = beside_nvidias_runtime
    manifest = Manifest("gpushare-device-plugin.yaml").with_image("gpushare", image.with_more_name(GPUSHARE))
    with running(rig, manifest, "gpushare=true"):
        try:
            wait_for("the node to offer its cards", lambda: offered(rig, pods.GPU_MEM) == 30, seconds=90)
            pods.create(rig, [pods.pod("first", units=3)])
            pods.wait_running(rig, ["first"])
        except RigError as error:
            raise RigError(f"{error}\n{told(rig, 'gpushare-device-plugin-ds')}") from error
        assert findings(pods.observe(rig), ["default/first"]) == []
        assert pods.get(rig, "first")["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
        lacking = [line for line in told(rig, "gpushare-device-plugin-ds").splitlines() if "lacks a right" in line]
        assert ["may not patch leases" in line for line in lacking] == [True]


def test_elastic_gpus_own_daemon_set_serves_a_pod_with_only_the_image_changed(beside_nvidias_runtime: Rig) -> None:
    """Its init container installs nothing. The pod goes past our scheduler, and is placed late."""
    rig = beside_nvidias_runtime
    manifest = (
        Manifest("elastic-gpu-agent.yaml")
        .with_image("elastic-gpu-agent", image.with_more_name(ELASTIC))
        .with_image("elastic-gpu-installer", image.with_more_name(ELASTIC))
    )
    percent = "elastic-gpu/gpu-percent"
    with running(rig, manifest, "dialect.aliquot.io/elastic=true"):
        try:
            wait_for("the node to offer its cards", lambda: offered(rig, percent) == 200, seconds=90)
            pod = pods.pod("part", nodeName=rig.node_name)
            pod["spec"]["containers"][0]["resources"] = {"limits": {percent: "20"}}
            pods.create(rig, [pod])
            pods.wait_running(rig, ["part"])
        except RigError as error:
            raise RigError(f"{error}\n{told(rig, 'elastic-gpu-agent')}") from error
        assert findings(pods.observe(rig), ["default/part"]) == []
        assert pods.look_inside(rig, "part").environment["ALIQUOT_MEMORY_MIB"] == "3072"
        assert "Aliquot installs nothing on the node" in told(rig, "elastic-gpu-agent")


def test_gpu_managers_own_daemon_set_serves_a_pod_with_only_the_image_changed(beside_nvidias_runtime: Rig) -> None:
    """Without CDI and PodResources, with the pod's own service account below a mount of the host's /var/run. Its log is
    a file of the node."""
    rig = beside_nvidias_runtime
    manifest = Manifest("gpu-manager.yaml").with_image("gpu-manager", image.with_more_name(MANAGER))
    log = rig.node_etc / "gpu-manager" / "log" / "gpu-manager.INFO"
    with running(rig, manifest, "nvidia-device-enable=enable"):
        try:
            wait_for("the node to offer its cards", lambda: offered(rig, CORE) == 200, seconds=90)
            part = pods.pod("part", limits={CORE: "30", "tencent.com/vcuda-memory": "8"}, nodeName=rig.node_name)
            pods.create(rig, [part])
            pods.wait_running(rig, ["part"])
        except RigError as error:
            said = log.read_text() if log.exists() else "no log"
            raise RigError(f"{error}\n{told(rig, 'gpu-manager-daemonset')}\n{said}") from error
        annotations = pods.get(rig, "part")["metadata"]["annotations"]
        ((card,),) = json.loads(annotations["aliquot.io/placement"])["containers"].values()
        gpu = next(gpu for gpu in rig.nvml.gpus if gpu.uuid == card["uuid"])
        seen = pods.look_inside(rig, "part")
        assert {path for path in seen.devices if path[len("/dev/nvidia") :].isdigit()} == {f"/dev/nvidia{gpu.minor}"}
        assert seen.environment["NVIDIA_VISIBLE_DEVICES"] == gpu.uuid
        assert annotations["tencent.com/gpu-assigned"] == "true"
        assert annotations["tencent.com/predicate-gpu-idx-0"] == str(gpu.minor)
        assert "starting the agent" in log.read_text()


@pytest.fixture(scope="module")
def served(own: Rig) -> Rig:
    """The same with our DaemonSet. The rig's node has its cards and its CDI folder at other places than a real one, and
    the library that stands in for NVIDIA's reads a file."""
    manifest = Manifest(DEPLOY / "agent.yaml")
    spec = manifest.of("DaemonSet", "aliquot-agent")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    folders = {"dev": own.dev_folder, "cdi": own.cdi_folder, "nvml": own.nvml.file.parent}
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] not in folders]
    mounts = [mount for mount in container["volumeMounts"] if mount["name"] not in folders]
    container["volumeMounts"] = mounts + [{"name": name, "mountPath": str(path)} for name, path in folders.items()]
    spec["volumes"] += [{"name": name, "hostPath": {"path": str(path)}} for name, path in folders.items()]
    container["args"] += [f"--cdi-folder={own.cdi_folder}", f"--dev-folder={own.dev_folder}"]
    container["env"].append({"name": "FAKE_NVML_FILE", "value": str(own.nvml.file)})
    manifest.apply(own)
    own.kubectl("label", "node", own.node_name, "dialect.aliquot.io/gpushare=true")
    wait_for("the node to offer its cards", lambda: offered(own, pods.GPU_MEM) == 30, seconds=90)
    return own


@pytest.fixture(autouse=True)
def no_pods(own: Rig) -> Iterator[None]:
    yield
    pods.delete_all(own)


def offered(rig: Rig, resource: str) -> int:
    node = json.loads(rig.kubectl("get", "node", rig.node_name, "--output=json"))
    return int(node["status"].get("allocatable", {}).get(resource, "0"))


def agent_pod(rig: Rig) -> dict[str, Any]:
    words = ["get", "pods", f"--namespace={NAMESPACE}", "--selector=app.kubernetes.io/component=agent", "--output=json"]
    (found,) = json.loads(rig.kubectl(*words))["items"]
    pod: dict[str, Any] = found
    return pod


def agent_process(pod: dict[str, Any]) -> int:
    """The process id of the agent in this pod, as seen on this machine."""

    def runs_the_agent(process: Path) -> bool:
        with suppress(OSError):  # it has ended
            is_in_pod = pod["metadata"]["uid"] in (process / "cgroup").read_text()
            return is_in_pod and b"--host-root=/host" in (process / "cmdline").read_bytes().split(b"\0")
        return False

    (found,) = filter(runs_the_agent, Path("/proc").glob("[0-9]*"))
    return int(found.name)


def agent_lines(rig: Rig) -> list[dict[str, Any]]:
    words = ["logs", f"--namespace={NAMESPACE}", "daemonset/aliquot-agent"]
    return [json.loads(line) for line in rig.kubectl(*words, check=False).splitlines() if line.startswith("{")]


def test_our_daemon_set_serves_pods_with_a_bound_token_and_no_more_rights_than_it_needs(served: Rig) -> None:
    pods.create(served, [pods.pod("first", units=3), pods.pod("second", units=12)])
    pods.wait_running(served, ["first", "second"])
    assert findings(pods.observe(served), ["default/first", "default/second"]) == []
    first, *others = agent_lines(served)
    assert first["event"] == "starting the agent"
    assert first["nvml"] == f"/host/{DRIVER}/libnvidia-ml.so.1"
    assert [line.get("what", line) for line in others if line["level"] in ("warning", "error")] == [
        "run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, or set --driver-root and --host-root",
        "set hostPID: true in the agent's pod (docs/nodes.md)",
    ], "the rig's driver has no libcuda, and its node is a container whose processes the driver does not know"


def test_labels_change_what_the_daemon_set_serves(served: Rig) -> None:
    served.kubectl("label", "node", served.node_name, "dialect.aliquot.io/tencent=true")
    try:
        wait_for("the other dialect", lambda: offered(served, CORE) == 200, seconds=30)
        assert offered(served, pods.GPU_MEM) == 30
    finally:
        served.kubectl("label", "node", served.node_name, "dialect.aliquot.io/tencent-")
    alone = (0, 30)
    wait_for("one dialect", lambda: (offered(served, CORE), offered(served, pods.GPU_MEM)) == alone, seconds=30)


def test_an_update_of_the_agent_disturbs_no_pod(served: Rig, progress: Callable[[str], None]) -> None:
    pods.create(served, [pods.pod("stays", units=3)])
    pods.wait_running(served, ["stays"])
    before = pods.get(served, "stays")["status"]["containerStatuses"][0]["containerID"]
    started = time.monotonic()
    served.kubectl("rollout", "restart", "daemonset/aliquot-agent", f"--namespace={NAMESPACE}")
    wait_for("kubelet to miss the agent", lambda: offered(served, pods.GPU_MEM) == 0, seconds=60, every=0.05)
    missed = time.monotonic()
    pods.create(served, [pods.pod("waits", units=12)])
    wait_for("the next agent", lambda: offered(served, pods.GPU_MEM) == 30, seconds=60, every=0.05)
    progress(f"update of the agent: gap {time.monotonic() - missed:.1f} s, after {missed - started:.1f} s")
    pods.wait_running(served, ["waits"])
    assert pods.get(served, "stays")["status"]["containerStatuses"][0]["containerID"] == before
    assert findings(pods.observe(served), ["default/stays", "default/waits"]) == []


@pytest.fixture
def impatient(served: Rig) -> Rig:
    """The same with a kubelet that does not wait a minute for the agent's answer."""
    probe = {"periodSeconds": 1, "timeoutSeconds": 1, "terminationGracePeriodSeconds": 1}
    spec = {"containers": [{"name": "agent", "livenessProbe": probe}]}
    daemon_set = (f"--namespace={NAMESPACE}", "daemonset/aliquot-agent")
    served.kubectl("patch", *daemon_set, "--patch", json.dumps({"spec": {"template": {"spec": spec}}}))
    served.kubectl("rollout", "status", *daemon_set, "--timeout=60s")
    wait_for("the next agent", lambda: has_registered(served), seconds=60)
    wait_for("the node to offer its cards", lambda: offered(served, pods.GPU_MEM) == 30, seconds=30)
    return served


def has_registered(rig: Rig) -> bool:
    return any(line["event"] == "registered with kubelet" for line in agent_lines(rig))


def test_kubelet_restarts_an_agent_that_is_stuck_and_no_pod_notices(impatient: Rig) -> None:
    pods.create(impatient, [pods.pod("stays", units=3)])
    pods.wait_running(impatient, ["stays"])
    before = agent_pod(impatient)
    (status,) = before["status"]["containerStatuses"]
    assert status["ready"]
    os.kill(agent_process(before), signal.SIGSTOP)

    def is_back() -> bool:
        (now,) = agent_pod(impatient)["status"]["containerStatuses"]
        is_next = now["restartCount"] == status["restartCount"] + 1
        return is_next and now["ready"] and has_registered(impatient)

    try:
        wait_for("kubelet to restart the agent", is_back, seconds=60, every=0.3)
    except RigError as error:
        raise RigError(f"{error}\n{agent_pod(impatient)['status']}\n{agent_lines(impatient)}") from error
    wait_for("the node to offer its cards", lambda: offered(impatient, pods.GPU_MEM) == 30, seconds=30)
    pods.create(impatient, [pods.pod("next", units=12)])
    pods.wait_running(impatient, ["next"])
    assert findings(pods.observe(impatient), ["default/stays", "default/next"]) == []
