"""A pod that is hard to place costs one search, whichever caller asks, and then waits. Other pods go on meanwhile."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from aliquot.control.decision_log.format import read
from aliquot.control.decision_log.replay import Replay
from aliquot.control.decision_log.writer import DecisionLog
from aliquot.control.loops.scheduler import Scheduler
from aliquot.control.placing.filter_results import demand_hash
from aliquot.embedded.api import resources
from aliquot.endpoints import native
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.volcano import volcano_routes
from aliquot.metrics import REGISTRY
from aliquot.model import Pod
from aliquot.model.admission import WOKEN
from bench.searching.pods import hard_pod, held_pod, node_manifest, small_pod, used_by_others
from tests.fakes import until
from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.endpoints.serving import served
from tests.integration.endpoints.volcano import manifest_of, node_info, task_info
from tests.integration.room import Room

LIMIT = "search limit reached; a placement may still exist"
NODES = 12
NAMES = [f"n{number:02}" for number in range(NODES)]


@pytest.fixture
async def hard(room: Room) -> AsyncIterator[Endpoint]:
    """Nodes of eight cards. On each card another pod holds a different small part."""
    for node, used in zip(NAMES, used_by_others(NODES), strict=True):
        room.api.registry.create(resources.NODES, "", node_manifest(node))
        for card, mib in enumerate(used):
            room.api.registry.create(resources.PODS, "default", held_pod(node, card, mib))
    await room.in_sync()
    routes = {**native.routes(room.plane), **volcano_routes(room.plane, "native", None, "/aliquot")}
    async with served(Routes(routes)) as url, aiohttp.ClientSession() as session:
        yield Endpoint(session, url, room)


async def create(room: Room, manifest: Mapping[str, Any]) -> Pod:
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    room.api.registry.create(resources.PODS, namespace, dict(manifest))
    await room.in_sync()
    pod = room.plane.pods.get(f"{namespace}/{name}")
    assert pod is not None
    return pod


async def ask_filter(endpoint: Endpoint, pod: Mapping[str, Any], nodes: list[str] = NAMES) -> Any:
    return (await endpoint.post("/aliquot/filter", {"Pod": pod, "NodeNames": nodes})).json


def searches() -> dict[str, float]:
    """The outcomes of this process's searches."""
    outcomes = ("found", "fits_nowhere", "given_up", "pod_waits", "namespace_waits")
    return {
        outcome: REGISTRY.get_sample_value("aliquot_searches_total", {"outcome": outcome}) or 0.0
        for outcome in outcomes
    }


async def test_nodes_that_were_not_searched_say_so_and_the_pod_binds_to_a_searched_node(hard: Endpoint) -> None:
    pod = await create(hard.room, hard_pod())
    answer = await ask_filter(hard, manifest_of(pod))
    assert 0 < len(answer["NodeNames"]) < NODES
    assert set(answer["FailedNodes"].values()) == {LIMIT}
    call = {"Pod": manifest_of(pod), "NodeNames": answer["NodeNames"]}
    assert (await hard.post("/aliquot/prioritize", call)).status == 200
    bind = {"PodName": "hard", "PodNamespace": "default", "PodUID": pod.metadata.uid, "Node": answer["NodeNames"][0]}
    assert (await hard.post("/aliquot/bind", bind)).json == {"Error": ""}


async def test_only_the_nodes_of_the_call_cost_effort(hard: Endpoint) -> None:
    pod = await create(hard.room, hard_pod())
    for node in ("n11", "n05"):
        assert (await ask_filter(hard, manifest_of(pod), [node]))["NodeNames"] == [node]


@pytest.mark.parametrize(
    ("count", "is_read"), [pytest.param(32, True), pytest.param(33, False), pytest.param(512, False)]
)
async def test_a_pod_with_too_many_gpu_containers_is_refused_with_the_reason(
    hard: Endpoint, count: int, is_read: bool
) -> None:
    limits = {"limits": {"aliquot.io/gpu": "1"}}
    containers = [{"name": f"c{number}", "image": "app", "resources": limits} for number in range(count)]
    annotations = {"aliquot.io/memory": "10Mi", "aliquot.io/cores": "0"}
    manifest = {"metadata": {"name": "many", "namespace": "default", "annotations": annotations, "uid": "u"}}
    answer = await ask_filter(hard, {**manifest, "spec": {"containers": containers}})
    assert (len(answer["NodeNames"]) == NODES) is is_read
    if not is_read:
        why = f"{count} containers ask for GPUs; Aliquot places at most 32 per pod"
        assert set(answer["FailedNodes"].values()) == {why}


# -- pods that need more than the effort of one decision


@pytest.fixture
def too_hard(hard: Endpoint) -> Endpoint:
    hard.room.plane.cluster.searches.seconds = 0.1
    return hard


Ask = Callable[[Endpoint, Pod], Awaitable[object]]


async def by_filter(endpoint: Endpoint, pod: Pod) -> None:
    answer = await ask_filter(endpoint, manifest_of(pod))
    assert (answer["NodeNames"], set(answer["FailedNodes"].values())) == ([], {LIMIT})


async def by_prioritize(endpoint: Endpoint, pod: Pod) -> None:
    reply = await endpoint.post("/aliquot/prioritize", {"Pod": manifest_of(pod), "NodeNames": NAMES})
    assert reply.json == []


async def by_volcano(endpoint: Endpoint, pod: Pod) -> None:
    for node in NAMES:
        call = {"task": task_info(manifest_of(pod)), "node": node_info(node)}
        assert (await endpoint.post("/aliquot/vpredicates", call)).json["status"] == LIMIT


async def by_our_scheduler(endpoint: Endpoint, pod: Pod) -> None:
    await Scheduler(endpoint.room.plane, serves=lambda _: True).place_pending()
    await endpoint.room.in_sync()
    (condition,) = endpoint.room.api_pod(pod)["status"]["conditions"]
    assert LIMIT in condition["message"]


async def by_preempt(endpoint: Endpoint, pod: Pod) -> None:
    victims = {node: {"Pods": [{"UID": "somebody"}]} for node in NAMES}
    reply = await endpoint.post("/aliquot/preempt", {"Pod": manifest_of(pod), "NodeNameToMetaVictims": victims})
    assert reply.json["NodeNameToMetaVictims"] in ({}, None)


async def by_explain(endpoint: Endpoint, pod: Pod) -> None:
    demand = endpoint.room.plane.cluster.demand_of(pod)
    assert demand is not None
    assert LIMIT in endpoint.room.plane.cluster.explain(demand).text()


async def by_bind(endpoint: Endpoint, pod: Pod) -> None:
    """A filter has passed the pod there before."""
    plane, column = endpoint.room.plane, endpoint.room.plane.cluster.fleet.column("n00")
    assert column is not None
    asked = demand_hash(plane.cluster.demand_of(pod))
    plane.passes.put(pod.metadata.uid, plane.cluster.fleet, [column], asked=asked, namespace="default")
    bind = {"PodName": "hard", "PodNamespace": "default", "PodUID": pod.metadata.uid, "Node": "n00"}
    assert (await endpoint.post("/aliquot/bind", bind)).json == {"Error": LIMIT}


everybody = pytest.mark.parametrize(
    "ask", [by_filter, by_prioritize, by_volcano, by_our_scheduler, by_preempt, by_explain, by_bind]
)


@everybody
async def test_every_caller_searches_once_and_then_backs_off(too_hard: Endpoint, ask: Ask) -> None:
    pod = await create(too_hard.room, hard_pod())
    searched = []
    for _ in range(8):
        before = searches()["given_up"]
        await ask(too_hard, pod)
        await ask(too_hard, pod)
        searched.append(searches()["given_up"] - before)
        await too_hard.room.clock.move(1)
    assert searched == [1, 1, 0, 1, 0, 0, 0, 1], "after 1, 2 and 4 seconds"


async def test_whoever_reads_about_a_pod_takes_nothing_of_its_time(too_hard: Endpoint) -> None:
    pod = await create(too_hard.room, hard_pod())
    before = searches()

    answer = await too_hard.send("GET", f"/v1/explain/default/{pod.metadata.name}?node=n00")

    assert answer.status == 200
    assert answer.json["nodes"]
    assert searches() == before
    assert not too_hard.room.plane.cluster.searches.is_waiting(pod.metadata.uid)


async def test_searches_for_a_pod_bound_by_another_scheduler_back_off_too(too_hard: Endpoint) -> None:
    late, before = too_hard.room.plane.late, searches()["given_up"]
    manifest = hard_pod()
    manifest["spec"]["nodeName"] = "n00"
    await create(too_hard.room, manifest)
    for _ in range(8):
        await late.look()
        await too_hard.room.clock.move(1)
    assert searches()["given_up"] - before <= 4


async def test_other_pods_are_answered_as_before_while_a_namespace_has_used_up_its_time(hard: Endpoint) -> None:
    hard.room.api.registry.create(resources.NAMESPACES, "", {"metadata": {"name": "elsewhere"}})
    for number in range(20):
        await ask_filter(hard, manifest_of(await create(hard.room, hard_pod(f"hard-{number}"))))
    before = searches()
    answer = await ask_filter(hard, manifest_of(await create(hard.room, hard_pod("next"))))
    assert (answer["NodeNames"], set(answer["FailedNodes"].values())) == ([], {LIMIT})
    assert searches()["namespace_waits"] == before["namespace_waits"] + 1
    assert (await ask_filter(hard, easy_pod()))["NodeNames"] == NAMES
    other = await create(hard.room, hard_pod("other", "elsewhere"))
    assert (await ask_filter(hard, manifest_of(other)))["NodeNames"] != []


async def test_invented_pods_share_one_account_whatever_namespace_they_claim(hard: Endpoint) -> None:
    for number in range(20):
        await ask_filter(hard, hard_pod(f"hard-{number}", f"made-up-{number}", uid=f"u{number}"))
    assert (await ask_filter(hard, hard_pod("next", "made-up", uid="next")))["NodeNames"] == []
    real = await create(hard.room, hard_pod("real"))
    assert (await ask_filter(hard, manifest_of(real)))["NodeNames"] != []


async def test_a_stream_of_hard_pods_of_one_namespace_leaves_time_to_others(hard: Endpoint) -> None:
    """A new pod each second, as a controller creates them. Time counts in steps of at most a second."""
    room, seconds = hard.room, 30
    room.plane.cluster.searches.seconds = 0.25
    before = spent()
    for number in range(seconds):
        await ask_filter(hard, hard_pod(f"hard-{number}", uid=f"u{number}"))
        small = await create(room, small_pod(f"small-{number}"))
        node = (await ask_filter(hard, manifest_of(small)))["NodeNames"][0]
        call = {"PodName": small.metadata.name, "PodNamespace": "default", "PodUID": small.metadata.uid, "Node": node}
        assert (await hard.post("/aliquot/bind", call)).json == {"Error": ""}
        await room.clock.move(1)
    assert spent() - before <= 2 + seconds / 10 + 0.25


def spent() -> float:
    return REGISTRY.get_sample_value("aliquot_search_seconds_total") or 0.0


def easy_pod() -> dict[str, Any]:
    """Two containers that a greedy choice places."""
    manifest = hard_pod("easy", uid="easy")
    manifest["spec"]["containers"] = manifest["spec"]["containers"][:2]
    mine = ("aliquot.io/c0", "aliquot.io/c1")
    annotations = manifest["metadata"]["annotations"]
    manifest["metadata"]["annotations"] = {key: text for key, text in annotations.items() if key.endswith(mine)}
    return manifest


# -- requeueing


def is_woken(room: Room) -> bool:
    return any(WOKEN in str(seen.body) for seen in room.api.writes())


async def test_a_pod_whose_search_ran_out_is_requeued_when_it_may_search_again(
    too_hard: Endpoint,
) -> None:
    """Room becomes available while it waits. The later search finds it without another change."""
    room = too_hard.room
    pod = await create(room, hard_pod())
    await by_filter(too_hard, pod)
    held = room.plane.pods.get("default/n03-0")
    assert held is not None
    await room.delete_pod(held)
    room.plane.cluster.searches.seconds = 1.0
    await room.plane.requeuer.look()
    assert not is_woken(room), "it was searched a moment ago"
    await until(lambda: is_woken(room), "it is woken", passing=room.clock)


async def test_a_waiting_pod_is_requeued_at_once_if_it_needs_no_search(too_hard: Endpoint) -> None:
    room = too_hard.room
    pod = await create(room, hard_pod())
    for _ in range(8):  # it waits for eight seconds then
        await by_filter(too_hard, pod)
        await room.clock.move(1)
    room.api.registry.create(resources.NODES, "", node_manifest("large", 24))
    await room.in_sync()
    await room.clock.move(1)
    await until(lambda: is_woken(room), "it is woken")
    assert room.plane.cluster.searches.is_waiting(pod.metadata.uid)


# -- replay


async def test_a_replay_uses_the_effort_of_the_original_decision(too_hard: Endpoint, tmp_path: Path) -> None:
    path, room = tmp_path / "decisions", too_hard.room
    with DecisionLog(path, room.plane.cluster, clock=room.clock):
        for number, seconds in enumerate((0.1, 1.0, 0.8, 0.02)):
            room.plane.cluster.searches.seconds = seconds
            room.api.registry.create(resources.NAMESPACES, "", {"metadata": {"name": f"ns-{number}"}})
            pod = await create(room, hard_pod(f"hard-{number}", f"ns-{number}"))
            await ask_filter(too_hard, manifest_of(pod), NAMES[number:])
            await ask_filter(too_hard, manifest_of(pod), NAMES)
            await room.clock.move(3600)
    replay = Replay()
    replay.feed(read(path))
    assert (replay.difference, replay.decisions) == (None, 8)
