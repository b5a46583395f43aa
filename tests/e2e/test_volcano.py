"""Real Volcano schedulers place gangs of GPU pods through our routes. Nodes and pods are objects of a real API server.

`VOLCANO=all` runs them all, one of each form of answers; otherwise the current one.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.dialects import standard_dialects
from aliquot.model import Reason
from tests.checker import unplaced
from tests.real import volcano
from tests.real.objects import asking, gpu_node
from tests.real.recorder import Recorder, recording
from tests.real.scheduler import Scheduling
from tests.real.serving import serving
from tests.real.volcano import gang
from tests.rig.volcano import CURRENT, versions
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e]

GPU_MEM = "aliyun.com/gpu-mem"
PLACEMENT = "aliquot.io/placement"


class Volcano:
    def __init__(self, cluster: Scheduling, recorder: Recorder, version: str) -> None:
        self.cluster = cluster
        self.recorder = recorder
        self.version = version

    def answers(self, verb: str, pod: str = "") -> list[Any]:
        return [call.answer for call in self.asked(verb, pod)]

    def asked(self, verb: str, pod: str = "") -> list[Any]:
        return [call for call in self.recorder.about(verb) if pod in ("", call.asked["task"]["Name"])]

    def refusals(self, pod: str = "") -> set[str]:
        """Why nodes were refused, in whatever form."""
        found: set[str] = set()
        for answer in self.answers("vpredicates", pod):
            status = answer.get("status", answer.get("errorMessage"))
            found |= {status} if isinstance(status, str) else {one["Reason"] for one in status}
        return found - {""}

    def placed(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """Wait until each pod is bound and has its placement, which comes after its node."""
        return {name: self.cluster.wait_annotated(name, PLACEMENT) for name in names}


@pytest.fixture(scope="module", params=versions(), ids=lambda version: f"volcano-{version}")
def installed(
    request: pytest.FixtureRequest, control_plane: Scheduling, progress: Callable[[str], None]
) -> tuple[str, Path]:
    """A version, and the folder with its scheduler."""
    return request.param, volcano.install(control_plane, request.param, progress)


@pytest.fixture
def running(control_plane: Scheduling, installed: tuple[str, Path]) -> Iterator[Volcano]:
    version, programs = installed
    control_plane.clear()
    with (
        serving(control_plane) as aliquot,
        recording(aliquot.url("admission")) as recorder,
        volcano.scheduling(control_plane, programs, f"{recorder.url}/scheduler"),
    ):
        yield Volcano(control_plane, recorder, version)
    control_plane.clear()


def tencent(name: str, cores: int, blocks: int = 10) -> dict[str, Any]:
    return asking(name, {"tencent.com/vcuda-core": cores, "tencent.com/vcuda-memory": blocks})


def cores_sold(pods: dict[str, dict[str, Any]]) -> Counter[str]:
    """Percent of each card, by its UUID, as the pods' placements say."""
    sold: Counter[str] = Counter()
    for pod in pods.values():
        for parts in json.loads(pod["metadata"]["annotations"][PLACEMENT])["containers"].values():
            for part in parts:
                sold[part["uuid"]] += part["cores"]
    return sold


def test_a_gang_of_gpushare_pods_fills_cards_and_no_card_twice(running: Volcano) -> None:
    """Three of 10 fit into a node's 30 units, and two onto its cards."""
    cluster = running.cluster
    cluster.create(*(gpu_node(name, "gpushare") for name in ("n1", "n2")))
    names = gang(cluster, "shared", [asking(f"p{place}", {GPU_MEM: 10}) for place in range(4)])
    pods = running.placed(names)
    assert unplaced(cluster.observe(), [f"default/{name}" for name in names]) == []
    assert Counter(pod["spec"]["nodeName"] for pod in pods.values()) == {"n1": 2, "n2": 2}
    not_seen_yet = standard_dialects()["gpushare"].words(Reason.UNKNOWN_NODE)  # Volcano may know a new node before us
    assert running.refusals() - {not_seen_yet} == {"Insufficient GPU Memory in one device"}


def test_a_gang_of_tencent_pods_gets_a_card_each(running: Volcano) -> None:
    """Three of 60 fit into a node's 200 percent, and two onto its cards."""
    cluster = running.cluster
    cluster.create(*(gpu_node(name, "tencent") for name in ("n1", "n2")))
    names = gang(cluster, "vcuda", [tencent(f"p{place}", 60) for place in range(4)])
    pods = running.placed(names)
    assert cores_sold(pods) == dict.fromkeys(("GPU-n1-0", "GPU-n1-1", "GPU-n2-0", "GPU-n2-1"), 60)
    for pod in pods.values():
        written = pod["metadata"]["annotations"]
        assert written["tencent.com/predicate-node"] == pod["spec"]["nodeName"]
        assert written["tencent.com/gpu-assigned"] == "false"
        assert written["tencent.com/predicate-gpu-idx-0"] in ("3", "4")


def test_a_gang_that_does_not_fit_as_a_whole_takes_nothing(running: Volcano) -> None:
    cluster = running.cluster
    cluster.create(gpu_node("n1", "tencent"))
    names = gang(cluster, "large", [tencent(f"p{place}", 60) for place in range(3)])
    wait_for("Volcano to be refused", running.refusals, seconds=30)
    wait_for("Volcano to ask again", lambda: len(running.asked("vpredicates")) > 6, seconds=30)
    assert cluster.bound() == {}
    cluster.create(gpu_node("n2", "tencent"))
    assert max(cores_sold(running.placed(names)).values()) == 60


def test_the_node_with_the_best_score_is_taken(running: Volcano) -> None:
    cluster = running.cluster
    cluster.create(*(gpu_node(name, "gpushare") for name in ("n1", "n2", "n3")))
    running.placed(gang(cluster, "first", [asking("first", {GPU_MEM: 9})]))
    where = cluster.bound()["first"]
    running.placed(gang(cluster, "second", [asking("second", {GPU_MEM: 6})]))
    scores = running.answers("vprioritize", "second")[-1]["nodeScore"]
    assert scores == {name: 100_000 if name == where else 0 for name in ("n1", "n2", "n3")}
    assert cluster.bound()["second"] == where


def test_a_pod_without_gpu_is_nobody_s_business(running: Volcano) -> None:
    cluster = running.cluster
    cluster.create(gpu_node("n1", "gpushare"))
    gang(cluster, "plain", [asking("plain", {"cpu": "1"})])
    wait_for("the pod to be bound", lambda: "plain" in cluster.bound(), seconds=30)
    assert PLACEMENT not in cluster.pod("plain")["metadata"]["annotations"]
    assert running.version != CURRENT or not running.recorder.calls, "from 1.13 on Volcano heeds managedResources"


def test_what_volcano_gives_up_is_given_back_at_once(running: Volcano) -> None:
    """Half of a gang has its place, the rest does not: Volcano takes all of it back, and another pod gets the room."""
    cluster = running.cluster
    if running.version != CURRENT:
        pytest.skip("before 1.13 Volcano does not tell where it puts a pod")
    cluster.create(gpu_node("n1", "tencent"))
    gang(cluster, "large", [tencent(f"p{place}", 60) for place in range(3)])
    wait_for("Volcano to give a place up", lambda: running.asked("vdeallocate"), seconds=30)
    pods = running.placed(gang(cluster, "small", [tencent("small", 100)]))
    assert cores_sold(pods) == {"GPU-n1-0": 100} or cores_sold(pods) == {"GPU-n1-1": 100}
    kept = {call.asked["task"]["Name"] for call in running.asked("vallocate") if not call.answer["errorMessage"]}
    assert "small" in kept
