"""Pods of the end-to-end tests: making them, waiting for them, looking into them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.checker import Cluster, Inside
from tests.rig import Rig
from tests.rig.images import BUSYBOX
from tests.rig.waiting import wait_for

GPU_MEM = "aliyun.com/gpu-mem"
_NODES = "/dev/nvidia* /dev/nvidia-caps/* /host/dev/*"
LOOK = f"env; for node in {_NODES}; do [ -c $node ] && stat -c 'device %n %t %T' $node; done; true"

LOOKED = "looked=yes"
"""What a container prints that has looked around when it started."""


def pod(name: str, units: int = 3, limits: Mapping[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    """A pod as gpushare's users write it: one container that asks for GPU memory, or for other `limits`. `changes` go
    into the pod's spec."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "trap exit TERM; sleep 3600 & wait"],
        "resources": {"limits": limits or {GPU_MEM: str(units)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **changes},
    }


def create(rig: Rig, pods: Iterable[dict[str, Any]]) -> None:
    """All of them in one call."""
    rig.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)}))


def delete_all(rig: Rig) -> None:
    rig.kubectl("delete", "pods", "--all", "--namespace=default", "--grace-period=1", "--timeout=60s")


def get(rig: Rig, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rig.kubectl("get", "pod", name, "--output=json"))
    return found


def wait_running(rig: Rig, names: Iterable[str], seconds: float = 90) -> None:
    wanted = set(names)

    def running() -> bool:
        listed = json.loads(rig.kubectl("get", "pods", "--output=json"))["items"]
        return wanted <= {item["metadata"]["name"] for item in listed if item["status"]["phase"] == "Running"}

    wait_for(f"pods {', '.join(sorted(wanted))} to run", running, seconds=seconds, every=0.3)


def restart(rig: Rig, name: str) -> None:
    """End the pod's container, and wait until kubelet has started it once more."""
    before = get(rig, name)["status"]["containerStatuses"][0]["restartCount"]
    wait_for(
        f"kubelet to reach {name}", lambda: rig.kubectl("exec", name, "--", "echo", "here", check=False), seconds=30
    )
    # The container takes the exec with it: whether kubectl still hears of success is chance, the restart is the proof.
    rig.kubectl("exec", name, "--", "kill", "1", check=False)

    def started() -> bool:
        status = get(rig, name)["status"]["containerStatuses"][0]
        return bool(status["restartCount"] == before + 1 and "running" in status["state"])

    wait_for(f"the next start of {name}", started, seconds=60, every=0.3)


def look_inside(rig: Rig, name: str, container: str = "main") -> Inside:
    """What the container sees, told by the container itself."""
    return read_look(rig.kubectl("exec", name, "--container", container, "--", "sh", "-c", LOOK))


def cards_of(rig: Rig, name: str) -> list[str]:
    """The UUIDs of the cards of a pod with one container: those of its placement, and the container sees exactly
    these."""
    ((parts),) = json.loads(get(rig, name)["metadata"]["annotations"]["aliquot.io/placement"])["containers"].values()
    uuids = [part["uuid"] for part in parts]
    seen = look_inside(rig, name)
    assert seen.environment["NVIDIA_VISIBLE_DEVICES"] == ",".join(uuids), name
    minors = {gpu.minor for gpu in rig.nvml.gpus if gpu.uuid in uuids}
    nodes = {f"/dev/nvidia{gpu.minor}" for gpu in rig.nvml.gpus} & seen.devices.keys()
    assert nodes == {f"/dev/nvidia{minor}" for minor in minors}, name
    return uuids


def read_look(output: str) -> Inside:
    """What LOOK has printed in a container."""
    environment: dict[str, str] = {}
    devices: dict[str, tuple[int, int]] = {}
    for line in output.splitlines():
        if line.startswith("device "):
            _, path, major, minor = line.split()
            devices[path] = (int(major, 16), int(minor, 16))
        else:
            key, _, value = line.partition("=")
            environment[key] = value
    return Inside(environment, devices)


def told_by_logs(rig: Rig, selector: str) -> dict[str, str]:
    """The logs of these pods by name, in one call."""
    output = rig.kubectl("logs", f"--selector={selector}", "--prefix", "--tail=-1", "--max-log-requests=100")
    lines: dict[str, list[str]] = {}
    for line in output.splitlines():
        where, _, text = line.partition(" ")
        lines.setdefault(where.split("/")[1], []).append(text)
    return {name: "\n".join(told) for name, told in lines.items()}


def observe(rig: Rig) -> Cluster:
    """The cluster for the checker, with a look inside every running container. Other tests leave pods on nodes that
    are only objects."""
    listed = json.loads(rig.kubectl("get", "pods", "--all-namespaces", "--output=json"))["items"]
    pods = [item for item in listed if item["spec"].get("nodeName", rig.node_name) == rig.node_name]
    nodes = [json.loads(rig.kubectl("get", "node", rig.node_name, "--output=json"))]
    inside = {
        (item["metadata"]["uid"], container["name"]): look_inside(rig, item["metadata"]["name"], container["name"])
        for item in pods
        if item["status"]["phase"] == "Running" and item["metadata"]["namespace"] == "default"
        for container in item["spec"]["containers"]
    }
    return Cluster(pods, nodes, inside)
