"""Our own scheduler places pods that fit, and says on each other pod why it waits."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aliquot.control.loops.node_choice import NodeChooser
from aliquot.control.loops.scheduler import Scheduler
from aliquot.control.state.events import Claimed
from aliquot.dialects.gpushare import IDX
from aliquot.kube import NODES
from aliquot.model import Pod
from tests.factories import GPU_MEM, container_manifest, make_cards
from tests.fakes import answer, cut_after, cut_before, held, until
from tests.integration.room import Room


@pytest.fixture
def scheduler(room: Room) -> Scheduler:
    return Scheduler(room.plane, serves=lambda name: name == "default-scheduler")


@pytest.fixture
async def running(room: Room, scheduler: Scheduler) -> AsyncIterator[Room]:
    task = asyncio.create_task(scheduler.run())
    yield room
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def node_of(room: Room, pod: Pod) -> str:
    return str(room.api_pod(pod)["spec"].get("nodeName", ""))


def why_waiting(room: Room, pod: Pod) -> str:
    conditions = room.api_pod(pod)["status"].get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")


WAITING: list[Any] = [
    pytest.param({"gpu_mem": 16}, "0/1 nodes are available: 1 Insufficient GPU Memory in one device", id="too large"),
    pytest.param({"gpu_mem": 0}, "no container of the pod asks for more than 0 of aliyun.com/gpu-mem", id="nothing"),
    pytest.param({"gpu_mem": "10G"}, "write 10, not 10G", id="bytes instead of units"),
]


@pytest.mark.parametrize(("pod", "why"), WAITING)
async def test_an_unschedulable_pod_waits_with_the_reason_in_its_condition(
    room: Room, scheduler: Scheduler, pod: dict[str, Any], why: str
) -> None:
    await room.add_node()
    made = await room.add_pod(**pod)
    await scheduler.place_pending()
    assert why in why_waiting(room, made)


async def test_the_reason_is_written_once_while_it_stays_the_same(room: Room, scheduler: Scheduler) -> None:
    await room.add_node()
    await room.add_pod(gpu_mem=16)
    for _ in range(3):
        await scheduler.place_pending()
        await room.in_sync()
    assert [(seen.method, seen.path.rpartition("/")[2]) for seen in room.api.writes()] == [
        ("PATCH", "status"),
        ("POST", "events"),
    ]


@pytest.mark.parametrize(
    ("node", "why"),
    [
        pytest.param({"ready": False}, "the node is not ready", id="a node that is not ready"),
        pytest.param({"spec": {"unschedulable": True}}, "the node is cordoned", id="a cordoned node"),
        pytest.param(
            {"capacity": {GPU_MEM: "0"}},
            "1 kubelet has too few devices of aliyun.com/gpu-mem left",
            id="no device plugin",
        ),
    ],
)
async def test_a_node_that_cannot_start_the_pod_is_not_used(
    room: Room, scheduler: Scheduler, node: dict[str, Any], why: str
) -> None:
    await room.add_node(**node)
    pod = await room.add_pod()
    await scheduler.place_pending()
    assert node_of(room, pod) == ""
    assert why in why_waiting(room, pod)


def asking(name: str = "p", **limits: str) -> dict[str, Any]:
    """A pod with one container that requests this; `__` in a name is a slash, `_` a dash."""
    named = {resource.replace("__", "/").replace("_", "-"): amount for resource, amount in limits.items()}
    return {"name": name, "containers": [{"name": "main", "image": "app", "resources": {"limits": named}}]}


PLAIN = {"cpu": "4", "memory": "8Gi", "pods": "3"}


@pytest.mark.parametrize(
    ("pod", "short"),
    [
        pytest.param(
            asking(aliyun__gpu_memory="3"), "Insufficient aliyun/gpu-memory", id="a resource that no node offers"
        ),
        pytest.param(
            asking(**{"aliyun.com__gpu_mem": "3", "aliyun.com__gpu_cores": "1"}),
            "Insufficient aliyun.com/gpu-cores",
            id="such a resource next to a dialect's own",
        ),
        pytest.param(
            asking(**{"nvidia.com__gpu": "1", "nvidia.com__gpu_mem": "3000"}),
            "Insufficient nvidia.com/gpu-mem",
            id="another dialect's spelling",
        ),
        pytest.param(asking(cpu="4.5"), "Insufficient cpu", id="more CPU than the node has"),
        pytest.param(
            asking(**{"aliyun.com__gpu_mem": "3", "cpu": "3500m", "memory": "7Gi"}),
            "Insufficient cpu, Insufficient memory",
            id="more CPU and memory than is left",
        ),
    ],
)
async def test_every_requested_resource_is_counted(
    room: Room, scheduler: Scheduler, pod: dict[str, Any], short: str
) -> None:
    await room.add_node(capacity=PLAIN)
    await room.add_pod(**asking("other", cpu="1", memory="2Gi"), node="n1")
    made = await room.add_pod(**pod)
    await scheduler.place_pending()
    assert node_of(room, made) == ""
    assert why_waiting(room, made) == f"0/1 nodes are available: 1 {short}"


async def test_a_node_takes_pods_up_to_its_resources_and_its_number_of_pods(room: Room, scheduler: Scheduler) -> None:
    await room.add_node(capacity=PLAIN)
    await room.add_pod(**asking("first", cpu="1500m"), node="n1")
    ended = await room.add_pod(**asking("ended", cpu="4"), node="n1")
    await room.report(ended, phase="Succeeded")
    rest = await room.add_pod(**asking("rest", cpu="2.5"))
    await scheduler.place_pending()
    await room.in_sync()
    assert node_of(room, rest) == "n1"
    third, fourth = [await room.add_pod(**asking(name)) for name in ("third", "with-a-late-name")]
    await scheduler.place_pending()
    await room.in_sync()
    assert node_of(room, third) == "n1"
    assert why_waiting(room, fourth) == "0/1 nodes are available: 1 Too many pods"


async def test_a_pod_that_is_claimed_and_not_yet_bound_takes_its_cpu(room: Room) -> None:
    await room.add_node(capacity=PLAIN)
    first, second = [
        await room.add_pod(**asking(name, **{"aliquot.io__gpu": "1", "cpu": "2.5"})) for name in ("first", "second")
    ]
    cluster = room.plane.cluster
    demand = cluster.demand_of(first)
    assert demand is not None
    cluster.apply(Claimed(demand.request, cluster.fit(demand, "n1")))
    chooser = NodeChooser(room.plane.cluster, room.plane.nodes.all, room.plane.pods_on)
    assert chooser.choose(second).why == "0/1 nodes are available: 1 Insufficient cpu"
    assert chooser.choose(first).node == "n1"


async def test_events_on_the_pod_report_what_happened(room: Room, scheduler: Scheduler) -> None:
    await room.add_pod()
    await scheduler.place_pending()
    await room.add_node()
    await scheduler.place_pending()
    events = [seen.body for seen in room.api.writes() if seen.path.endswith("/events")]
    assert [(event["type"], event["reason"], event["message"]) for event in events] == [
        ("Warning", "FailedScheduling", "0/0 nodes are available: there is no node"),
        ("Normal", "Scheduled", "Successfully assigned default/p to n1"),
    ]
    assert {event["involvedObject"]["name"] for event in events} == {"p"}


@pytest.mark.parametrize("path", ["/status$", "/events$"], ids=["the condition", "the event"])
async def test_a_failed_event_or_status_write_stops_no_placement(room: Room, scheduler: Scheduler, path: str) -> None:
    await room.add_node()
    await room.add_pod("large", 16)
    small = await room.add_pod("small", 1)
    room.api.script("PATCH", path, answer(403, message="no"))
    room.api.script("POST", path, answer(403, message="no"))
    await scheduler.place_pending()
    assert node_of(room, small) == "n1"


async def test_a_pod_is_bound_as_soon_as_kubelet_offers_the_resource(running: Room) -> None:
    await running.add_node(capacity={GPU_MEM: "0"})
    pod = await running.add_pod()
    await until(lambda: why_waiting(running, pod))
    await running.client.patch(NODES, "n1", {"status": {"allocatable": {GPU_MEM: "30"}}}, part="status")
    await until(lambda: node_of(running, pod) == "n1")


async def test_a_waiting_pod_is_placed_when_room_becomes_available(running: Room) -> None:
    await running.add_node(make_cards(mib=(15360,)))
    first = await running.add_pod("first", 10)
    await until(lambda: node_of(running, first) == "n1")
    second = await running.add_pod("second", 10)
    await until(lambda: why_waiting(running, second))
    await running.delete_pod(first)
    await until(lambda: node_of(running, second) == "n1")


async def test_a_waiting_pod_is_placed_when_a_node_is_added(running: Room) -> None:
    pod = await running.add_pod()
    await until(lambda: why_waiting(running, pod) == "0/0 nodes are available: there is no node")
    await running.add_node()
    await until(lambda: node_of(running, pod) == "n1")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"schedulingGates": [{"name": "tests.example/gate"}]}, id="a gated pod"),
        pytest.param({"schedulerName": "another"}, id="a pod of another scheduler"),
        pytest.param({"node": "n1"}, id="a bound pod"),
    ],
)
async def test_pods_that_are_not_ours_to_place_are_left_alone(
    room: Room, scheduler: Scheduler, fields: dict[str, Any]
) -> None:
    await room.add_node()
    await room.add_pod(**fields)
    await scheduler.place_pending()
    assert room.api.writes() == []


async def test_a_pod_that_is_being_deleted_is_left_alone(room: Room, scheduler: Scheduler) -> None:
    await room.add_node()
    pod = await room.add_pod(metadata={"finalizers": ["tests.example/wait"]})
    await room.delete_pod(pod)
    await scheduler.place_pending()
    assert room.api.writes() == []


async def test_the_node_with_the_tightest_card_is_chosen(room: Room, scheduler: Scheduler) -> None:
    await room.add_node(make_cards("large", mib=(81920,)))
    await room.add_node(make_cards("small", mib=(15360,)))
    await room.add_node(make_cards("also-small", mib=(15360,)))
    pod = await room.add_pod()
    await scheduler.place_pending()
    assert node_of(room, pod) == "also-small"


async def test_a_pod_without_gpu_goes_to_a_ready_node(room: Room, scheduler: Scheduler) -> None:
    await room.add_plain_node("cpu", {})
    pod = await room.add_pod(gpu_mem=None)
    await scheduler.place_pending()
    assert node_of(room, pod) == "cpu"


async def test_concurrent_pods_take_one_binding_each_and_fill_the_cards_exactly(running: Room) -> None:
    await running.add_node(make_cards("n1"))
    await running.add_node(make_cards("n2"))
    pods = [await running.add_pod(f"p{number:02}", 5) for number in range(13)]
    placed = [pod for pod in pods if pod.metadata.name != "p12"]
    await until(lambda: all(node_of(running, pod) for pod in placed) and why_waiting(running, pods[-1]))
    assert node_of(running, pods[-1]) == ""
    assert sorted(seen.path.split("/")[-2] for seen in running.api.bindings()) == [p.metadata.name for p in placed]
    cards = {(node_of(running, pod), running.api_pod(pod)["metadata"]["annotations"][IDX]) for pod in placed}
    assert len(cards) == 4


@pytest.mark.parametrize("fault", [cut_before, cut_after], ids=["it was not made", "it was made"])
async def test_an_unanswered_binding_is_retried_on_the_same_node(running: Room, fault: Any) -> None:
    """gpu-b is the better choice by then, since gpu-a's card holds the claim."""
    running.api.script("POST", "/binding$", fault)
    await running.add_node(make_cards("gpu-a", mib=(15360,)))
    pod = await running.add_pod()
    await until(lambda: running.api.bindings())
    await running.add_node(make_cards("gpu-b", mib=(3072,)))
    await until(lambda: node_of(running, pod))
    await running.in_sync()
    assert node_of(running, pod) == "gpu-a"
    assert (running.used("gpu-a"), running.used("gpu-b")) == ({0: 3}, {})


async def test_a_failed_binding_is_retried_after_a_pause(running: Room) -> None:
    running.api.script("POST", "/binding$", answer(429, message="slow down"))
    await running.add_node()
    pod = await running.add_pod()
    await until(lambda: running.api.bindings())
    refused = running.clock.monotonic()
    await until(lambda: node_of(running, pod) == "n1", passing=running.clock, between_calls_of=running.api)
    assert running.clock.monotonic() > refused, "not at once"


@pytest.mark.parametrize("plural", ["pods", "nodes"])
async def test_nothing_is_placed_while_our_cache_may_be_out_of_sync(
    room: Room, scheduler: Scheduler, plural: str
) -> None:
    await room.add_node()
    pod = await room.add_pod()
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("GET", rf"/{plural}\?.*watch=true", answer(410, reason="Expired", message="too old"))
    room.api.script("GET", rf"/{plural}\?limit=", held(arrived, release))
    room.api.cut_watches(plural)
    await until(arrived.is_set, "the control plane lists again", passing=room.clock)
    await scheduler.place_pending()
    assert room.api.writes() == []
    release.set()
    await until(lambda: not room.plane.not_ready())
    await scheduler.place_pending()
    assert node_of(room, pod) == "n1"


def limits(**amounts: str) -> list[dict[str, Any]]:
    return [container_manifest(gpu_mem=None, resources={"limits": amounts})]


async def test_a_resource_that_a_pod_does_not_ask_for_does_not_matter(room: Room, scheduler: Scheduler) -> None:
    """A node whose plugin for whole cards is gone, and that still counts an old pod against it."""
    cards = make_cards()
    await room.add_node(cards, capacity={"aliyun.com/gpu-count": "0"})
    await room.add_pod("old", node="n1", containers=limits(**{"aliyun.com/gpu-count": "1"}))
    pod = await room.add_pod("new")
    await scheduler.place_pending()
    assert node_of(room, pod) == "n1"


async def test_the_reason_names_the_resource_of_which_kubelet_has_too_few(room: Room, scheduler: Scheduler) -> None:
    await room.add_node(capacity={"aliyun.com/gpu-count": "0"})
    pod = await room.add_pod(containers=limits(**{"aliyun.com/gpu-count": "1"}))
    await scheduler.place_pending()
    assert "1 kubelet has too few devices of aliyun.com/gpu-count left" in why_waiting(room, pod)
