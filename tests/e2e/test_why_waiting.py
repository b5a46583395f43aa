"""Ten causes of waiting, each made on a real API server with a real kube-scheduler: the pod's event, its condition and
the first line of `kubectl gpu explain` name the cause. Nothing else has to be looked at, and nothing is asked twice."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aliquot.model import NodeGpus
from aliquot.model.admission import PLACEABLE
from tests.factories import make_cards, make_gpu
from tests.integration.kubectl.command import gpu
from tests.kubectl_commands import tenant_of
from tests.real.objects import asking, gpu_node
from tests.real.recorder import Recorder, recording
from tests.real.scheduler import DEPLOY, Scheduling, pointed_at
from tests.real.serving import serving
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e]

GPU_MEM = "aliyun.com/gpu-mem"
CONFIG = DEPLOY / "gpushare" / "kube-scheduler.yaml"
MAPS = "/api/v1/namespaces/kube-system/configmaps"
SECONDS = 60.0
QUIET = 3.0
"""Seconds in which whoever spins writes and asks hundreds of times."""

RUNNING = {"a": 8, "b": 8}
"""Units that pods hold, each on a card of n1 of its own."""


def of_model(model: str) -> dict[str, str]:
    return {"nvidia.com/use-gputype": model}


WAITING: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "typo": (
        asking("typo", {"aliyun.com/gpu-memory": 3}),
        "NoSuchResource",
        "no node has the resource aliyun.com/gpu-memory; did you mean aliyun.com/gpu-mem?",
    ),
    "unserved": (
        asking("unserved", {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4}),
        "NotServed",
        "no node serves tencent.com/vcuda-core or tencent.com/vcuda-memory",
    ),
    "taint": (
        asking("taint", {GPU_MEM: 3}, annotations=of_model("A10")),
        "UntoleratedTaint",
        "have the taint team=red:NoSchedule, which the pod does not tolerate",
    ),
    "cpu": (asking("cpu", {GPU_MEM: 3, "cpu": 1000}), "InsufficientCPU", "has as much CPU as the pod requests"),
    "selector": (
        asking("selector", {GPU_MEM: 3}, nodeSelector={"disk": "ssd"}),
        "NodeSelector",
        "matches the pod's node selector or affinity",
    ),
    "quota": (
        asking("quota", {GPU_MEM: 3}, namespace="limited"),
        "QuotaUsedUp",
        "exceeds the GPU quota of namespace limited for ",
    ),
    "model": (
        asking("model", {GPU_MEM: 3}, annotations=of_model("H100")),
        "NoSuchModel",
        "no node has a card of the requested model (H100)",
    ),
    "fragmented": (asking("fragmented", {GPU_MEM: 9}, annotations=of_model("T4")), "Fragmented", "(fragmentation)"),
    "large": (
        asking("large", {GPU_MEM: 20}),
        "TooLarge",
        "no node's cards can hold the pod even when empty; it needs 20 units of memory of 1 card",
    ),
    "unhealthy": (
        asking("unhealthy", {GPU_MEM: 3}, annotations=of_model("L4")),
        "UnhealthyCards",
        "every card that could hold the pod is unhealthy or cordoned (n3)",
    ),
    "silent": (
        asking("silent", {GPU_MEM: 3}, annotations=of_model("P4")),
        "AgentSilent",
        "the agent is silent on the nodes with room on their cards (n4), so kubelet offers no aliyun.com/gpu-mem",
    ),
}
"""A pod, the reason, and a part of the sentence."""


def nodes() -> Iterator[dict[str, Any]]:
    yield gpu_node("n1", "gpushare")
    yield _of("n2", "NVIDIA A10") | {"spec": {"taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]}}
    yield gpu_node("n3", "gpushare", replace(_cards("n3", "NVIDIA L4"), gpus=_unhealthy("n3")))
    silent = _of("n4", "Tesla P4")
    silent["status"]["allocatable"] = {**silent["status"]["allocatable"], GPU_MEM: "0", "aliyun.com/gpu-count": "0"}
    yield silent


def _cards(name: str, model: str) -> NodeGpus:
    return replace(make_cards(name), gpus=(make_gpu(0, name, model=model),))


def _unhealthy(name: str) -> Any:
    return (make_gpu(0, name, model="NVIDIA L4", healthy=False),)


def _of(name: str, model: str) -> dict[str, Any]:
    return gpu_node(name, "gpushare", _cards(name, model))


class Waiters:
    def __init__(self, cluster: Scheduling, recorder: Recorder) -> None:
        self.cluster = cluster
        self.recorder = recorder

    def _items(self, kind: str) -> list[Any]:
        items: list[Any] = self.cluster.ask("GET", f"/api/v1/{kind}")["items"]
        return items

    def conditions(self) -> dict[str, dict[str, Any]]:
        return {
            pod["metadata"]["name"]: condition
            for pod in self._items("pods")
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == PLACEABLE
        }

    def events(self) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for event in self._items("events"):
            if event.get("source", {}).get("component") == "aliquot":
                found.setdefault(event["involvedObject"]["name"], []).append((event["reason"], event["message"]))
        return found

    def explained(self, name: str, namespace: str, kubeconfig: Path | None = None) -> str:
        path = kubeconfig or self.cluster.api.control_plane.kubeconfig("admin")
        ended = gpu("explain", name, "-n", namespace, "--kubeconfig", str(path))
        assert ended.code == 0, ended.err
        return ended.out


@pytest.fixture
def waiters(scheduling: Scheduling) -> Iterator[Waiters]:
    scheduling.ensure_namespace("limited")
    data = {"gpu_quota": json.dumps({"limited": {"memory": dict.fromkeys(("T4", "A10", "L4", "P4"), 1024)}})}
    scheduling.ask("POST", MAPS, {"metadata": {"name": "gpuquota"}, "data": data})
    scheduling.create(*nodes())
    with serving(scheduling) as aliquot, recording(aliquot.url("gpushare")) as recorder:
        scheduling.schedule(pointed_at(CONFIG, recorder.url))
        for name, units in RUNNING.items():
            scheduling.create(asking(name, {GPU_MEM: units}))
        scheduling.wait_bound(*RUNNING, seconds=SECONDS)
        yield Waiters(scheduling, recorder)
    scheduling.ask("DELETE", f"{MAPS}/gpuquota")


def test_every_cause_is_named_by_the_event_the_condition_and_the_first_line(waiters: Waiters) -> None:
    cluster = waiters.cluster
    cluster.create(*(pod for pod, _, _ in WAITING.values()))
    wait_for("every verdict", lambda: waiters.conditions().keys() >= WAITING.keys(), seconds=SECONDS, every=0.2)
    wait_for("every event", lambda: waiters.events().keys() >= WAITING.keys(), seconds=SECONDS, every=0.2)
    conditions, events = waiters.conditions(), waiters.events()
    for name, (pod, reason, words) in WAITING.items():
        message = conditions[name]["message"]
        assert (name, conditions[name]["reason"], words in message) == (name, reason, True), message
        assert events[name] == [(reason, message)]
        first = waiters.explained(name, pod["metadata"]["namespace"]).splitlines()[0]
        assert first == f"{pod['metadata']['namespace']}/{name} waits. {message}"

    assert "did you mean aliyun.com/gpu-mem?" in cluster.kubectl("describe", "pod", "typo")
    cluster.apply(tenant_of("limited"))
    tenant = waiters.explained("quota", "limited", cluster.service_account_kubeconfig("limited", "tenant"))
    assert tenant.splitlines()[0] == f"limited/quota waits. {conditions['quota']['message']}"


def test_a_written_verdict_makes_kube_scheduler_ask_once_more_at_most(waiters: Waiters) -> None:
    """kube-scheduler itself asks twice for a pod that an extender refuses, and takes a new condition as news."""
    waiters.cluster.create(asking("waits", {GPU_MEM: 9}, annotations=of_model("T4")))
    wait_for("the verdict", lambda: "waits" in waiters.conditions(), seconds=SECONDS, every=0.2)
    time.sleep(QUIET)  # there is nothing to wait for: what is shown is that nobody asks any more
    asked = waiters.recorder.count("filter", "waits")
    time.sleep(QUIET)
    assert asked <= 3
    assert waiters.recorder.count("filter", "waits") == asked

    waiters.cluster.delete_pod("a")
    waiters.cluster.wait_bound("waits", seconds=SECONDS)
    wait_for("the condition to go", lambda: "waits" not in waiters.conditions(), seconds=SECONDS, every=0.2)
