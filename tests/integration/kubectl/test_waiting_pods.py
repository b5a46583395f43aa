"""What the commands say about pods that wait for something other than a card."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.model.pending_pod import PendingPod
from tests.factories import make_node, make_pod
from tests.integration.kubectl.cluster import NODES, at, cluster
from tests.integration.kubectl.command import archived, gpu

NEAREST = "no node has the resource aliyun.com/gpu-memory; did you mean aliyun.com/gpu-mem?"


def waits(name: str, limits: dict[str, str], **fields: Any) -> Any:
    containers = [{"name": "main", "image": "registry.example/app:1", "resources": {"limits": limits}}]
    return make_pod(
        name,
        uid=f"uid-{name}",
        containers=containers,
        metadata={"creationTimestamp": at(600)},
        status={"phase": "Pending", **fields.pop("status", {})},
        **fields,
    )


def shown(folder: Path, *arguments: str, pods: list[Any]) -> str:
    ended = gpu(*arguments, "--from", archived(cluster(pods=pods), folder))
    return ended.out + ended.err


def test_a_misspelt_resource_waits_in_the_queue_with_the_nearest_name(tmp_path: Path) -> None:
    pods = [waits("misspelt", {"aliyun.com/gpu-memory": "3"})]
    assert NEAREST in shown(tmp_path, "queue", "-o", "wide", "--no-headers", pods=pods)
    row = shown(tmp_path, "pods", "-o", "wide", "--no-headers", pods=pods)
    assert row.split()[:2] == ["misspelt", "Invalid"]
    assert NEAREST in row


def test_a_misspelt_resource_beside_a_known_one_fits_nowhere(tmp_path: Path) -> None:
    pods = [waits("both", {"aliyun.com/gpu-mem": "3", "aliyun.com/gpu-memory": "3"})]
    row = shown(tmp_path, "queue", "-o", "wide", "--no-headers", pods=pods).split()
    assert row[5:8] == ["-", "3", "units"]


def test_devices_of_other_vendors_are_not_ours(tmp_path: Path) -> None:
    pods = [waits("other", {"example.com/fpga": "1"})]
    assert shown(tmp_path, "queue", pods=pods) == "no pods wait for cards in namespace default\n"


def test_whatif_offers_the_nearest_name(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: "
        "[{name: main, resources: {limits: {aliyun.com/gpu-memory: 3}}}]}}"
    )
    assert f"p would wait. Never as things are: {NEAREST}\n" in shown(tmp_path, "whatif", "-f", str(manifest), pods=[])


def test_a_scheduler_that_has_not_tried_the_pod_is_named(tmp_path: Path) -> None:
    pods = [waits("foreign", {"aliyun.com/gpu-mem": "3"}, schedulerName="yunikorn")]
    untried = "scheduler yunikorn has not tried the pod; is it running, and does it know Aliquot?"
    assert f"Fits now: there is room for the pod; {untried}\n" in shown(tmp_path, "explain", "foreign", pods=pods)
    pods = [waits("foreign", {"aliyun.com/gpu-mem": "300"}, schedulerName="yunikorn")]
    assert shown(tmp_path, "explain", "foreign", pods=pods).splitlines()[-1] == f"Note: {untried}"


def test_a_scheduler_that_has_tried_the_pod_is_not_named(tmp_path: Path) -> None:
    tried = {"conditions": [{"type": "PodScheduled", "status": "False", "message": ""}]}
    pods = [waits("foreign", {"aliyun.com/gpu-mem": "3"}, schedulerName="yunikorn", status=tried)]
    assert "yunikorn" not in shown(tmp_path, "explain", "foreign", pods=pods)


def test_the_queue_names_no_node_for_a_pod_that_cannot_go_there(tmp_path: Path) -> None:
    limits = {"aliyun.com/gpu-mem": "3"}
    gated = waits("gated", limits, schedulingGates=[{"name": "example.com/later"}])
    pods = [gated, waits("hungry", {**limits, "cpu": "1000"}), waits("small", {**limits, "cpu": "1"})]
    pods.append(waits("networked", {**limits, "cpu": "1", "example.com/rdma": "1"}))
    rows = shown(tmp_path, "queue", "--no-headers", pods=pods).splitlines()
    assert {row.split()[1]: row.split()[5] for row in rows} == {
        "gated": "-",
        "hungry": "-",
        "small": "gpu-1",
        "networked": "-",
    }


def test_a_node_with_room_on_its_cards_only_does_not_fit(tmp_path: Path) -> None:
    pods = [waits("hungry", {"aliyun.com/gpu-mem": "3", "cpu": "1000"})]
    told = shown(tmp_path, "explain", "hungry", "--node", "gpu-1", pods=pods)
    assert "gpu-1: the cards have room, but: too little cpu even when empty\n" in told
    assert "the pod fits" not in told


NO_DEVICES = {"aliyun.com/gpu-mem": "0"}
ZONE = {"key": "zone", "operator": "In", "values": ["far"]}
SOMEWHERE_ELSE = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}
}
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
TOLERATION = {"key": "team", "operator": "Exists"}


@pytest.mark.parametrize(
    ("node", "pod", "cause"),
    [
        pytest.param({}, {}, "", id="open"),
        pytest.param({"spec": {"taints": [TAINT]}}, {}, "the taint team=a:NoSchedule", id="taint"),
        pytest.param({"spec": {"taints": [TAINT]}}, {"tolerations": [TOLERATION]}, "", id="tolerated"),
        pytest.param({}, {"affinity": {"nodeAffinity": SOMEWHERE_ELSE}}, "node selector or affinity", id="affinity"),
        pytest.param({"allocatable": NO_DEVICES}, {}, "the agent is silent", id="silent agent"),
    ],
)
def test_the_queue_and_whatif_judge_as_explain_does(
    tmp_path: Path, node: dict[str, Any], pod: dict[str, Any], cause: str
) -> None:
    made = make_node("gpu-1", NODES["gpu-1"], **node)
    resources = {"limits": {"aliyun.com/gpu-mem": "3"}}
    spec = {"containers": [{"name": "main", "image": "registry.example/app:1", "resources": resources}], **pod}
    metadata = {"name": "p", "namespace": "default", "uid": "uid-p"}
    full = msgspec.convert({"metadata": metadata, "spec": spec}, PendingPod)
    seen = waits("p", resources["limits"])
    archive = archived(cluster(nodes=[made], pods=[seen], waiting=[full], quotas=None, leases=[]), tmp_path)
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps({"kind": "Pod", "metadata": metadata, "spec": spec}))

    told, ends = gpu("explain", "p", "--from", archive), gpu("whatif", "-f", str(manifest), "--from", archive)
    (row,) = gpu("queue", "--no-headers", "--from", archive).out.splitlines()

    assert cause in told.out.splitlines()[0]
    assert row.split()[5] == ("-" if cause else "gpu-1")
    assert cause in ends.out
    assert ends.code == (1 if cause else 0)


def test_whatif_does_not_wait_for_the_end_of_pods_that_it_made_up(tmp_path: Path) -> None:
    told = shown(tmp_path, "whatif", "-f", "examples/gpushare.yaml", "--replicas", "500", pods=[])
    assert "would wait" in told
    assert "when pod default/binpack" not in told
    assert "when pod binpack" not in told
