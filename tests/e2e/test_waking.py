"""Pods that a real kube-scheduler was refused are bound when there is room, each by at most one write of ours."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from tests.real.objects import asking, gpu_node
from tests.real.recorder import Recorder, recording
from tests.real.scheduler import DEPLOY, Scheduling, pointed_at
from tests.real.serving import Serving, serving
from tests.real.watching import following
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e]

GPU_MEM = "aliyun.com/gpu-mem"
CONFIG = DEPLOY / "gpushare" / "kube-scheduler.yaml"
MAPS = "/api/v1/namespaces/kube-system/configmaps"
MANY = 50
NODES = [f"n{number}" for number in range(4)]
SECONDS = 60.0
QUIET = 3.0
"""Seconds in which whoever spins writes and asks hundreds of times."""

MUTE = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: mute, namespace: aliquot-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mute}
rules:
- {apiGroups: [""], resources: [nodes, pods, configmaps], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods/binding], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: mute}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: mute}
subjects: [{kind: ServiceAccount, name: mute, namespace: aliquot-system}]
"""
"""An account that may bind pods, and not wake them."""


class Versions:
    """Every version of every pod as the API server showed it, and when the last one got its node."""

    def __init__(self) -> None:
        self._seen: dict[str, list[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self.bound_at: dict[str, float] = {}

    def __call__(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        with self._lock:
            self._seen.setdefault(name, []).append(pod)
            if pod["spec"].get("nodeName"):
                self.bound_at.setdefault(name, time.monotonic())

    def wakes(self) -> dict[str, int]:
        """How many versions of each pod, while it waited, came from a write that was not of its status: the status is
        kube-scheduler's, and whatever else is written on a pod that waits is ours."""
        with self._lock:
            return {name: _changes(versions) for name, versions in self._seen.items()}


def _changes(versions: list[dict[str, Any]]) -> int:
    by_number = {version["metadata"]["resourceVersion"]: version for version in versions}
    waiting = [version for version in by_number.values() if not version["spec"].get("nodeName")]
    return sum(_but_status(before) != _but_status(now) for before, now in pairwise(waiting))


def _but_status(pod: dict[str, Any]) -> Any:
    kept = {key: value for key, value in pod["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    return kept, pod["spec"]


def write_quota(cluster: Scheduling, cards: int) -> None:
    data = {"gpu_quota": json.dumps({"default": {"quota": {"T4": cards}}})}
    if any(held["metadata"]["name"] == "gpuquota" for held in cluster.ask("GET", MAPS)["items"]):
        cluster.ask("PATCH", f"{MAPS}/gpuquota", {"data": data}, content="application/merge-patch+json")
    else:
        cluster.ask("POST", MAPS, {"metadata": {"name": "gpuquota"}, "data": data})


@pytest.fixture(autouse=True)
def quota(scheduling: Scheduling) -> Iterator[None]:
    """Everything is allowed at the start, and nothing is left at the end."""
    write_quota(scheduling, 10_000)
    yield
    scheduling.ask("DELETE", f"{MAPS}/gpuquota")


@contextmanager
def scheduled(cluster: Scheduling, **how: Any) -> Iterator[tuple[Serving, Recorder, Versions]]:
    versions = Versions()
    with (
        serving(cluster, **how) as aliquot,
        recording(aliquot.url("gpushare")) as recorder,
        following(cluster.api.url, "/api/v1/pods", versions),
    ):
        cluster.schedule(pointed_at(CONFIG, recorder.url))
        yield aliquot, recorder, versions


def asked(recorder: Recorder, name: str) -> int:
    return recorder.count("filter", name)


def refused(cluster: Scheduling, recorder: Recorder, *names: str, units: int = 1, **fields: Any) -> None:
    """Make pods, and wait until all of them were refused and nobody asks for them any more."""
    cluster.create(*(asking(name, {GPU_MEM: units}, **fields) for name in names))
    rounds: list[int] = []

    def is_quiet() -> bool:
        rounds.append(recorder.count("filter"))
        return all(asked(recorder, name) for name in names) and len(rounds) > 5 and rounds[-1] == rounds[-5]

    wait_for("the pods to be refused", is_quiet, seconds=SECONDS, processes=[cluster.scheduler], every=0.2)
    assert not set(names) & cluster.bound().keys()


def seconds_to_the_last(cluster: Scheduling, versions: Versions, since: float, names: list[str]) -> float:
    cluster.wait_bound(*names, seconds=SECONDS)
    wait_for("the last to be seen", lambda: versions.bound_at.keys() >= set(names), seconds=SECONDS, every=0.01)
    return max(versions.bound_at[name] for name in names) - since


def allows(aliquot: Serving, cluster: Scheduling, pod: str) -> bool:
    """Whether the server would take a pod now; asked where every node is scored, which wakes and holds nothing."""
    body = json.dumps({"Pod": cluster.pod(pod), "NodeNames": NODES}).encode()
    call = urllib.request.Request(
        f"{aliquot.url('elastic')}/scheduler/priorities", body, {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(call, timeout=5) as answer:
        return any(node["Score"] for node in json.load(answer))


def test_a_raised_quota_wakes_fifty_pods_by_at_most_one_write_each_and_as_fast_as_a_node_does(
    scheduling: Scheduling,
) -> None:
    names = [f"p{number:02}" for number in range(MANY)]
    scheduling.create(*(gpu_node(node, "gpushare") for node in NODES))
    scheduling.apply(MUTE)
    write_quota(scheduling, 0)
    with scheduled(scheduling, account=("aliquot-system", "mute"), lease_enabled="false") as (aliquot, recorder, seen):
        refused(scheduling, recorder, *names)
        write_quota(scheduling, 8)
        wait_for("the quota to be in force", lambda: allows(aliquot, scheduling, names[0]), seconds=SECONDS)
        assert scheduling.bound() == {}, "a quota wakes nobody by itself"
        began = time.monotonic()
        scheduling.annotate("Node", NODES[0], bell="1")
        by_node = seconds_to_the_last(scheduling, seen, began, names)
    assert not any(seen.wakes().values())
    for name in names:
        scheduling.delete_pod(name)
    write_quota(scheduling, 0)
    with scheduled(scheduling) as (_, recorder, seen):
        refused(scheduling, recorder, *names)
        began = time.monotonic()
        write_quota(scheduling, 8)
        by_us = seconds_to_the_last(scheduling, seen, began, names)
        time.sleep(QUIET)  # there is nothing to wait for: what is shown is that nothing more is written
    wakes = {name: seen.wakes()[name] for name in names}
    assert all(count <= 1 for count in wakes.values()), wakes
    assert sum(wakes.values()) > MANY / 2, "the leader's reason on a pod, which wakes it too, came first for a few only"
    print(f"time to the last of {MANY}: {by_us:.2f} s woken one by one, {by_node:.2f} s by a node's annotation")
    assert by_us <= 3 * by_node


def test_room_from_deleted_pods_costs_at_most_one_write_each(scheduling: Scheduling) -> None:
    """kube-scheduler hears of the end of a pod, perhaps before we do."""
    old, new = [f"old-{n}" for n in range(8)], [f"new-{n}" for n in range(20)]
    scheduling.create(*(gpu_node(node, "gpushare") for node in NODES))
    with scheduled(scheduling) as (_, recorder, seen):
        scheduling.create(*(asking(name, {GPU_MEM: 8}) for name in old))
        scheduling.wait_bound(*old, seconds=SECONDS)
        refused(scheduling, recorder, *new, units=8)
        for name in old:
            scheduling.delete_pod(name)
        wait_for("as many to be bound", lambda: len(set(scheduling.bound()) & set(new)) == len(old), seconds=SECONDS)
        time.sleep(QUIET)  # there is nothing to wait for: what is shown is that nothing more is written
        bound = set(scheduling.bound())
    wakes = {name: seen.wakes()[name] for name in new}
    assert all(count <= 1 for count in wakes.values()), wakes
    assert len(bound & set(new)) == len(old)


def test_room_that_kube_scheduler_itself_closes_to_a_pod_causes_no_hot_loop(scheduling: Scheduling) -> None:
    """The node with room has a taint, of which our cluster state knows nothing: the pod is woken in vain, once an
    opening."""
    scheduling.ensure_priority("high", 1000)
    tainted = gpu_node("n1", "gpushare")
    tainted["spec"] = {"taints": [{"key": "closed", "effect": "NoSchedule"}]}
    scheduling.create(tainted, gpu_node("n2", "gpushare"))
    old = ["old-0", "old-1"]
    with scheduled(scheduling) as (_, recorder, seen):
        scheduling.create(*(asking(name, {GPU_MEM: 8}, priorityClassName="high") for name in old))
        scheduling.wait_bound(*old, seconds=SECONDS)
        refused(scheduling, recorder, "large", units=10, priorityClassName="high")
        for count in (1, 2):
            write_quota(scheduling, 100 * count)
            wait_for(f"wake {count}", lambda: seen.wakes()["large"] == count, seconds=SECONDS)  # noqa: B023
            wait_for("an answer", lambda: asked(recorder, "large") >= 2 + count, seconds=SECONDS)  # noqa: B023
        before = asked(recorder, "large")
        time.sleep(QUIET)  # there is nothing to wait for: what is shown is that nothing happens
        after = asked(recorder, "large")
    assert seen.wakes()["large"] == 2
    assert after - before <= 2
    assert after < 20
