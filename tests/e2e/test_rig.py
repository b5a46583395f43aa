"""The rig itself: a real cluster, and nothing of it left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.machine import Machine
from tests.rig import BUSYBOX, Image, NodeSpec, Rig, RigError, programs, wait_for
from tests.rig.processes import Process

pytestmark = pytest.mark.e2e

_TREE = Path(__file__).parents[2]
_CLUSTER = [sys.executable, "-m", "tests.rig", "cluster"]


def pod(name: str, *command: str, image: str = BUSYBOX) -> str:
    container = {"name": "main", "image": image, "imagePullPolicy": "Never"}
    spec = {"containers": [container | ({"command": list(command)} if command else {})]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def running(rig: Rig, name: str) -> dict[str, Any]:
    def status() -> dict[str, Any] | None:
        found = json.loads(rig.kubectl("get", "pod", name, "--output=json"))["status"]
        return found if found.get("phase") == "Running" and found["containerStatuses"][0]["ready"] else None

    return wait_for(f"pod {name} to run", status, seconds=60, processes=[rig.kubelet.process], every=0.25)


@pytest.fixture(scope="module")
def talker(rig: Rig) -> dict[str, Any]:
    """A running pod that said hello; its status."""
    rig.apply(pod("talker", "sh", "-c", "echo hello; exec sleep 3600"))
    return running(rig, "talker")


def test_the_node_is_ready_and_real(rig: Rig) -> None:
    node = json.loads(rig.kubectl("get", "node", rig.node_name, "--output=json"))
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.37.")
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.")


def test_a_pod_runs_with_an_address_of_its_own(rig: Rig, talker: dict[str, Any]) -> None:
    assert talker["podIP"] != talker["hostIP"]
    assert talker["podIP"] in rig.kubectl("exec", "talker", "--", "ip", "address")


def test_pods_reach_each_other(rig: Rig, talker: dict[str, Any]) -> None:
    rig.apply(pod("other", "sleep", "3600"))
    running(rig, "other")
    assert "1 packets received" in rig.kubectl("exec", "other", "--", "ping", "-c1", "-W5", talker["podIP"])


@pytest.mark.usefixtures("talker")
def test_logs_and_exec_work(rig: Rig) -> None:
    wait_for("its word", lambda: rig.kubectl("logs", "talker") == "hello\n", seconds=30)
    assert rig.kubectl("exec", "talker", "--", "echo", "out") == "out\n"


def test_a_kubelet_restart_keeps_the_container(rig: Rig, talker: dict[str, Any]) -> None:
    before = talker["containerStatuses"][0]
    rig.kubelet.stop()
    rig.kubelet.start()
    rig.kubelet.wait_ready()
    rig.wait_node_ready()
    wait_for(
        "kubelet to know its pod again",
        lambda: rig.kubectl("logs", "talker", check=False) == "hello\n",
        seconds=30,
    )
    after = running(rig, "talker")["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


def test_the_node_has_only_a_nodes_rights(rig: Rig) -> None:
    def may(*what: str) -> bool:
        as_kubelet = f"--kubeconfig={rig.node.kubeconfig}"
        return rig.kubectl("auth", "can-i", *what, as_kubelet, check=False).startswith("yes")

    assert may("get", f"node/{rig.node_name}")
    assert not may("get", "node/another")
    assert not may("create", "deployments")


def test_a_service_account_has_its_own_kubeconfig(rig: Rig) -> None:
    kubeconfig = rig.service_account_kubeconfig("default", "default")
    name = rig.kubectl("auth", "whoami", f"--kubeconfig={kubeconfig}", "--output=json")
    assert json.loads(name)["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"


@pytest.fixture
def same_scheduler_afterwards(rig: Rig) -> Iterator[None]:
    before = rig.scheduler.configuration
    yield
    rig.restart_scheduler(before)


@pytest.mark.usefixtures("same_scheduler_afterwards")
def test_the_scheduler_takes_another_configuration(rig: Rig) -> None:
    rig.restart_scheduler({"profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "second"}]})
    document = json.loads(pod("by-second", "sleep", "3600"))
    document["spec"]["schedulerName"] = "second"
    rig.apply(json.dumps(document))
    running(rig, "by-second")


@pytest.mark.usefixtures("same_scheduler_afterwards")
def test_a_bad_scheduler_configuration_shows_its_log(rig: Rig) -> None:
    with pytest.raises(RigError, match=r"kube-scheduler ended[\s\S]*kube-scheduler.log[\s\S]*noSuchField"):
        rig.restart_scheduler({"noSuchField": 1})


def test_an_image_of_ones_own_runs(rig: Rig) -> None:
    busybox = Path("/bin/busybox").resolve()
    image = Image("docker.io/local/own:1", {"bin/sh": busybox, "word": b"own words"}, ["/bin/sh"], ["-c", "sleep 3600"])
    rig.load_images([image])
    rig.apply(pod("own", image=image.name))
    running(rig, "own")
    assert rig.kubectl("exec", "own", "--", "/bin/sh", "-c", "read -r w < /word; echo $w") == "own words\n"


def test_the_sockets_and_device_nodes_are_there(rig: Rig) -> None:
    assert (rig.device_plugins / "kubelet.sock").is_socket()
    assert rig.pod_resources_socket.is_socket()
    assert rig.containerd_socket.is_socket()
    numbers = {node.name: node.stat().st_rdev for node in rig.dev_folder.iterdir() if node.is_char_device()}
    assert numbers == {
        "nvidia0": os.makedev(195, 0),
        "nvidia1": os.makedev(195, 1),
        "nvidiactl": os.makedev(195, 255),
        "nvidia-uvm": os.makedev(235, 0),
        "nvidia-uvm-tools": os.makedev(235, 1),
    }


def test_a_further_process_ends_with_its_log_kept(rig: Rig) -> None:
    process = rig.start("speaker", ["sh", "-c", "echo $WORD; exec sleep 3600"], {"WORD": "spoken"})
    wait_for("the word", lambda: "spoken" in process.tail(), seconds=10, processes=[process])
    process.stop()
    assert not process.running


@contextmanager
def cluster_with_a_pod(progress: Callable[[str], None]) -> Iterator[subprocess.Popen[str]]:
    """`cluster` as a person runs it, with a pod started through the kubeconfig that it printed."""
    with subprocess.Popen(_CLUSTER, cwd=_TREE, stdout=subprocess.PIPE, text=True) as person:
        try:
            assert person.stdout is not None
            printed = ""
            while "Ctrl-C takes it down" not in printed:
                line = person.stdout.readline()
                assert line, f"cluster ended early:\n{printed}"
                printed += line
                if line.startswith("up after"):
                    progress(line.strip())
            kubeconfig = re.search(r"export KUBECONFIG=(\S+)", printed)
            kubectl = re.search(r"alias kubectl=(\S+)", printed)
            assert kubeconfig, printed
            assert kubectl, printed
            _run_pod([kubectl[1], f"--kubeconfig={kubeconfig[1]}", f"--cache-dir={Path(kubeconfig[1]).parent}/cache"])
            yield person
        finally:
            person.kill()


def _run_pod(kubectl: list[str]) -> None:
    subprocess.run([*kubectl, "apply", "-f", "-"], input=pod("left", "sleep", "3600"), text=True, check=True)
    wait = ["wait", "--for=condition=Ready", "--timeout=60s", "pod/left"]
    subprocess.run([*kubectl, *wait], check=True, stdout=subprocess.DEVNULL)


def test_cluster_exit_leaves_nothing() -> None:
    before = Machine.look()
    done = subprocess.run([*_CLUSTER, "--exit"], cwd=_TREE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "export KUBECONFIG=" in done.stdout
    assert Machine.look().changes_since(before) == {}


def test_sigterm_leaves_nothing(progress: Callable[[str], None]) -> None:
    before = Machine.look()
    with cluster_with_a_pod(progress) as person:
        person.terminate()
        assert person.wait(60) == 0
    assert Machine.look().changes_since(before) == {}


def test_sigkill_ends_every_process_and_down_clears_the_rest(progress: Callable[[str], None]) -> None:
    before = Machine.look()
    with cluster_with_a_pod(progress) as person:
        person.send_signal(signal.SIGKILL)
        person.wait(60)
    wait_for(
        "all processes to end with their parent",
        lambda: Machine.look().processes <= before.processes,
        seconds=20,
    )
    done = subprocess.run([*_CLUSTER[:-1], "down"], cwd=_TREE, capture_output=True, text=True, check=True)
    assert "cleared" in done.stdout
    assert Machine.look().changes_since(before) == {}


def test_a_second_rig_of_two_nodes_runs_beside_the_first(progress: Callable[[str], None]) -> None:
    """How long it takes is told, not judged: other work on the machine decides as much."""
    programs.find(progress)
    before = Machine.look()
    started = time.monotonic()
    with Rig.up(more_nodes=[NodeSpec("other-node")]) as second:
        progress(f"a second rig beside the first is up after {time.monotonic() - started:.1f} s")
        assert isinstance(second.kubelet.process, Process)
        names = [node.name for node in second.nodes]
        for name in names:
            document = json.loads(pod(f"on-{name}", "sleep", "3600"))
            document["spec"]["nodeName"] = name
            second.apply(json.dumps(document))
        addresses = [running(second, f"on-{name}")["podIP"] for name in names]
        ping = second.kubectl("exec", f"on-{names[0]}", "--", "ping", "-c1", "-W5", addresses[1])
        assert "1 packets received" in ping
    assert Machine.look().changes_since(before) == {}
