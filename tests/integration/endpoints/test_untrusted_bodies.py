"""The server stores results for pods as its informer cache has them, whatever a body says: invented pods, borrowed
UIDs and false demands change nothing about other pods."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from aliquot.embedded.api import resources
from aliquot.endpoints import native
from aliquot.endpoints.admission import AdmissionEndpoint
from aliquot.endpoints.volcano import volcano_routes
from aliquot.model import Pod
from aliquot.model.admission import WOKEN
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import until
from tests.integration.endpoints.endpoint import NOT_PASSED, Endpoint, bind_args
from tests.integration.endpoints.volcano import ALLOCATED, manifest_of, pod_of, task_info
from tests.integration.endpoints.wire import names_call, opened
from tests.integration.room import Room

FILTER, BIND, PREEMPT = "/aliquot/filter", "/aliquot/bind", "/aliquot/preempt"
SERVED = "default-scheduler"
LONG = "u" * 254


@pytest.fixture
async def endpoint(room: Room) -> AsyncIterator[Endpoint]:
    """Our own routes, gpu-admission's and Volcano's; n1 has two cards of 15 units."""
    await room.add_node(make_cards("n1"))
    room.plane.reconfigure(msgspec.structs.replace(room.plane.settings, schedulers=SERVED))
    volcano = volcano_routes(room.plane, "admission", None, "/scheduler")
    async with opened(
        room, {**AdmissionEndpoint(room.plane).routes(), **volcano, **native.routes(room.plane)}
    ) as open_:
        yield open_


async def filtered(endpoint: Endpoint, pod: Any, path: str = FILTER) -> list[str]:
    return list((await endpoint.post(path, names_call(pod, ["n1"]))).json["NodeNames"])


async def bound(endpoint: Endpoint, pod: Pod) -> str:
    return str((await endpoint.post(BIND, bind_args(pod))).json["Error"])


async def full(endpoint: Endpoint) -> list[Pod]:
    """Pods that each hold a card of n1."""
    pods = [await endpoint.room.add_pod(name, 15) for name in ("first", "second")]
    for pod in pods:
        await endpoint.pass_filter(pod, path=FILTER)
        assert await bound(endpoint, pod) == ""
    await endpoint.room.in_sync()
    return pods


def lying(pod: Pod, **spec: Any) -> dict[str, Any]:
    manifest = manifest_of(pod)
    return {**manifest, "spec": {**manifest["spec"], **spec}}


def asking(pod: Pod, units: int) -> dict[str, Any]:
    return lying(pod, containers=pod_manifest(gpu_mem=units)["spec"]["containers"])


def impostor(pod: Pod, units: int = 999) -> dict[str, Any]:
    """An invented pod of another namespace with a real pod's UID."""
    return pod_of("whoever", units, namespace="evil", metadata={"uid": pod.metadata.uid})


def woken(room: Room) -> list[str]:
    return [seen.path.rpartition("/")[2] for seen in room.api.writes() if WOKEN in str(seen.body)]


async def look(room: Room) -> None:
    await room.clock.move(2.0)
    await room.plane.requeuer.look()
    await until(lambda: not room.api.busy, "the API server has nothing to do")
    await room.in_sync()


# -- waiting pods


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param({"gpu_mem": None, "schedulerName": "theirs"}, id="without GPU, of another scheduler"),
        pytest.param({"gpu_mem": None}, id="without GPU"),
        pytest.param({"gpu_mem": 15, "schedulerName": "theirs"}, id="of another scheduler"),
    ],
)
async def test_a_foreign_pod_is_not_written_to(endpoint: Endpoint, room: Room, theirs: dict[str, Any]) -> None:
    holders = await full(endpoint)
    pod = await room.add_pod("theirs", theirs.pop("gpu_mem"), **theirs)
    assert await filtered(endpoint, asking(pod, 15)) == []
    await room.delete_pod(holders[0])
    await room.annotate(pod, touched="yes")
    await look(room)
    assert (woken(room), room.plane.requeuer.waiting) == ([], 0)


async def test_a_pod_refused_with_its_real_demand_is_requeued(endpoint: Endpoint, room: Room) -> None:
    holders = await full(endpoint)
    pod = await room.add_pod("p", 15)
    assert await filtered(endpoint, manifest_of(pod)) == []
    await room.delete_pod(holders[0])
    await look(room)
    await until(lambda: woken(room) == ["p"])


async def test_only_a_few_uids_of_invented_pods_are_stored(endpoint: Endpoint, room: Room) -> None:
    requeuer = room.plane.requeuer
    real = await room.add_pod("real", 999)
    await filtered(endpoint, manifest_of(real))
    large = {"annotations": {f"k{number}": "x" * 490 for number in range(3_000)}}
    await filtered(endpoint, pod_of("invented", 999, metadata=large))
    assert (requeuer.waiting, requeuer.early) == (1, 1)
    for number in range(2_000):
        requeuer.refused_early(f"made-up-{number}")
    assert (requeuer.waiting, requeuer.early) == (1, 1_000)


async def test_waiting_pods_of_one_namespace_do_not_evict_those_of_others(endpoint: Endpoint, room: Room) -> None:
    requeuer = room.plane.requeuer
    real = await room.add_pod("real", 999)
    await filtered(endpoint, manifest_of(real))
    flood = msgspec.convert(pod_of("flood", 999, namespace="evil"), Pod)
    for number in range(20_000):
        requeuer.refused(msgspec.structs.replace(flood, metadata=replace_uid(flood, f"u-{number}")))
    assert requeuer.waiting == 2_001
    requeuer.passed(real)
    assert requeuer.waiting == 2_000, "it still waited"


def replace_uid(pod: Pod, uid: str) -> Any:
    return msgspec.structs.replace(pod.metadata, uid=uid)


def created(room: Room) -> Pod:
    """A pod that our informer cache does not have."""
    manifest = pod_manifest("early", 15)
    return msgspec.convert(room.api.registry.create(resources.PODS, "default", manifest).obj, Pod)


async def test_a_pod_refused_before_our_cache_has_it_waits_once_the_cache_has_it(
    endpoint: Endpoint, room: Room
) -> None:
    """Room that became available in between counts."""
    await full(endpoint)
    async with room.late_informer():
        pod = created(room)
        assert await filtered(endpoint, manifest_of(pod)) == []
        assert (room.plane.requeuer.waiting, room.plane.requeuer.early) == (0, 1)
        cards = make_cards("n2")
        room.api.registry.create(resources.NODES, "", node_manifest("n2", cards))
        await until(lambda: room.plane.nodes.get("n2") is not None)
    await room.in_sync()
    assert (room.plane.requeuer.waiting, room.plane.requeuer.early) == (1, 0)
    await look(room)
    await until(lambda: woken(room) == ["early"])


async def test_a_pod_whose_demand_just_changed_waits_once_our_cache_shows_the_change(
    endpoint: Endpoint, room: Room
) -> None:
    await full(endpoint)
    whole = [{"name": "main", "image": "registry.example/app:1", "resources": {"limits": {"aliquot.io/gpu": "1"}}}]
    pod = await room.add_pod("p", containers=whole)
    ahead = manifest_of(pod)
    ahead["metadata"]["annotations"] = {"aliquot.io/memory": "15Gi"}
    assert await filtered(endpoint, ahead) == []
    assert room.plane.requeuer.waiting == 0
    await room.annotate(pod, **{"aliquot.io/memory": "15Gi"})
    assert room.plane.requeuer.waiting == 1


@pytest.mark.parametrize("units", [1, 999], ids=["passes", "is refused"])
async def test_a_false_demand_does_not_change_a_waiting_pod(endpoint: Endpoint, room: Room, units: int) -> None:
    holders = await full(endpoint)
    pod = await room.add_pod("p", 15)
    assert await filtered(endpoint, manifest_of(pod)) == []
    await room.delete_pod(holders[0])
    await filtered(endpoint, asking(pod, units))
    await filtered(endpoint, impostor(pod, units))
    await look(room)
    await until(lambda: woken(room) == ["p"])


# -- filter results


async def test_a_filter_with_a_false_demand_does_not_permit_a_bind(endpoint: Endpoint, room: Room) -> None:
    pod = await room.add_pod("big", 16)
    assert await filtered(endpoint, manifest_of(pod)) == []
    assert await filtered(endpoint, asking(pod, 1)) == ["n1"]
    assert await bound(endpoint, pod) == NOT_PASSED


@pytest.mark.parametrize(("units", "error"), [(15, ""), (1, NOT_PASSED)], ids=["true", "false"])
async def test_a_demand_filtered_before_our_cache_had_the_pod_must_match_the_pod(
    endpoint: Endpoint, room: Room, units: int, error: str
) -> None:
    async with room.late_informer():
        pod = created(room)
        assert await filtered(endpoint, asking(pod, units)) == ["n1"]
    await room.in_sync()
    assert await bound(endpoint, pod) == error


@pytest.mark.parametrize("lie", [impostor, lambda pod: asking(pod, 999)], ids=["impostor", "demand"])
async def test_other_bodies_about_a_pod_do_not_erase_its_filter_result(
    endpoint: Endpoint, room: Room, lie: Any
) -> None:
    pod = await room.add_pod("p", 1)
    await endpoint.pass_filter(pod, path=FILTER)
    assert await filtered(endpoint, lie(pod)) == []
    assert await bound(endpoint, pod) == ""


async def test_filter_results_of_one_namespace_do_not_evict_those_of_others(endpoint: Endpoint, room: Room) -> None:
    pod = await room.add_pod("p", 1)
    await endpoint.pass_filter(pod, path=FILTER)
    for number in range(30_000):
        room.plane.passes.put(f"u-{number}", room.plane.cluster.fleet, [0], asked=0, namespace="evil")
    assert len(room.plane.passes) == 5_001
    assert await bound(endpoint, pod) == ""


# -- nominated victims


async def preempted(endpoint: Endpoint, pod: Any, *victims: str) -> dict[str, Any]:
    proposed = {"n1": {"Pods": [{"UID": uid} for uid in victims], "NumPDBViolations": 0}}
    reply = await endpoint.post(PREEMPT, {"Pod": pod, "NodeNameToMetaVictims": proposed})
    return dict(reply.json["NodeNameToMetaVictims"])


async def test_a_false_priority_does_not_pass_a_pod_on_a_full_node(endpoint: Endpoint, room: Room) -> None:
    holders = await full(endpoint)
    pod = await room.add_pod("p", 15)
    assert await preempted(endpoint, lying(pod, priority=2_000_000_000), holders[0].metadata.uid) != {}
    assert len(room.plane.preemptions) == 0
    assert await filtered(endpoint, manifest_of(pod)) == []


async def test_a_false_priority_from_before_our_cache_had_the_pod_does_not_count(
    endpoint: Endpoint, room: Room
) -> None:
    holders = await full(endpoint)
    async with room.late_informer():
        pod = created(room)
        assert await preempted(endpoint, lying(pod, priority=2_000_000_000), holders[0].metadata.uid) != {}
        assert len(room.plane.preemptions) == 1
    await room.in_sync()
    assert await filtered(endpoint, manifest_of(pod)) == []


async def test_an_impostor_does_not_change_the_victims_of_a_pod(endpoint: Endpoint, room: Room) -> None:
    holders = await full(endpoint)
    pod = await room.add_pod("p", 15)
    await preempted(endpoint, manifest_of(pod), holders[0].metadata.uid)
    assert await filtered(endpoint, manifest_of(pod)) == ["n1"]
    await preempted(endpoint, impostor(pod, 15), holders[1].metadata.uid)
    assert len(room.plane.preemptions) == 1
    assert await filtered(endpoint, manifest_of(pod)) == ["n1"]


async def test_invented_victims_are_not_stored(endpoint: Endpoint, room: Room) -> None:
    pod = await room.add_pod("p", 15)
    await preempted(endpoint, manifest_of(pod), *(f"made-up-{number}" for number in range(100)))
    assert len(room.plane.preemptions) == 0


def test_victims_for_one_namespace_do_not_evict_those_for_others(room: Room) -> None:
    named = room.plane.preemptions
    named.name("real", {"n1": ["victim"]}, asked=1, namespace="default")
    for number in range(2_000):
        named.name(f"u-{number}", {"n1": ["victim"]}, asked=1, namespace="evil")
        named.name(f"v-{number}", {"n1": ["victim"]}, asked=1)
    assert len(named) == 1 + 256 + 128
    assert named.victims_of("real", 1) == {"n1": {"victim"}}


# -- the length of a UID


TOO_LONG: list[Any] = [
    pytest.param(FILTER, names_call(pod_of("p", 1, metadata={"uid": LONG}), ["n1"]), id="filter"),
    pytest.param(FILTER, names_call(pod_of(LONG, 1), ["n1"]), id="filter: the name"),
    pytest.param(FILTER, names_call(pod_of("p", 1, namespace=LONG), ["n1"]), id="filter: the namespace"),
    pytest.param("/scheduler/predicates", names_call(pod_of("p", 1, metadata={"uid": LONG}), ["n1"]), id="predicates"),
    pytest.param("/aliquot/prioritize", names_call(pod_of("p", 1, metadata={"uid": LONG}), ["n1"]), id="prioritize"),
    pytest.param(
        BIND, {"PodName": "p", "PodNamespace": "default", "PodUID": LONG, "Node": "n1"}, id="bind: the pod's UID"
    ),
    pytest.param(PREEMPT, {"Pod": pod_of("p", 1, metadata={"uid": LONG})}, id="preempt: the pod's UID"),
    pytest.param(
        PREEMPT,
        {"Pod": pod_of("p", 1), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": LONG}]}}},
        id="preempt: a victim's",
    ),
    pytest.param(
        PREEMPT,
        {"Pod": pod_of("p", 1), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u" * 300}] * 1_000}}},
        id="preempt: one of many victims'",
    ),
    pytest.param(
        PREEMPT,
        {"Pod": pod_of("p", 1), "NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": LONG}}]}}},
        id="preempt: a whole victim's",
    ),
    pytest.param("/scheduler/vallocate", {"task": task_info(pod_of("p", 1), UID=LONG)}, id="vallocate: the task's"),
    pytest.param(
        "/scheduler/vallocate",
        {"task": {**task_info(pod_of("p", 1, metadata={"uid": LONG}), status=ALLOCATED, node="n1"), "UID": "u"}},
        id="vallocate: the pod's",
    ),
    pytest.param("/scheduler/vdeallocate", {"task": task_info(pod_of("p", 1), UID=LONG)}, id="vdeallocate"),
]


@pytest.mark.parametrize(("path", "body"), TOO_LONG)
async def test_an_impossible_uid_is_refused_and_not_stored(
    endpoint: Endpoint, room: Room, path: str, body: dict[str, Any]
) -> None:
    reply = await endpoint.post(path, body)
    assert any(word in reply.body for word in (b"253", b"is not a valid Kubernetes object name"))
    plane = room.plane
    assert (len(plane.passes), len(plane.preemptions), plane.requeuer.early) == (0, 0, 0)


async def test_the_longest_valid_uid_is_accepted(endpoint: Endpoint) -> None:
    assert await filtered(endpoint, pod_of("p", 1, metadata={"uid": LONG[1:]})) == ["n1"]


# -- released reservations and audit lines


def audit_lines(lines: Any) -> list[tuple[str, str, str]]:
    return [(line["verb"], line["pod"], line["verdict"]) for line in lines if line["event"] == "audit"]


async def kept(endpoint: Endpoint, name: str = "p") -> Pod:
    pod = await endpoint.room.add_pod(name, 15)
    task = task_info(manifest_of(pod), status=ALLOCATED, node="n1")
    assert (await endpoint.post("/scheduler/vallocate", {"task": task})).json == {"errorMessage": ""}
    return pod


@pytest.mark.parametrize("how", ["another scheduler", "another pod", "another UID"])
async def test_volcano_cannot_release_reservations_of_foreign_pods(endpoint: Endpoint, room: Room, how: str) -> None:
    pod = await kept(endpoint)
    task = task_info(manifest_of(pod), status=ALLOCATED, node="n1")
    if how == "another scheduler":
        room.plane.reconfigure(msgspec.structs.replace(room.plane.settings, schedulers="volcano"))
    elif how == "another pod":
        task["Pod"]["metadata"]["name"] = "other"
    else:
        task["Pod"] = manifest_of(await room.add_pod("q", 1))
    with capture_logs() as lines:
        assert (await endpoint.post("/scheduler/vdeallocate", {"task": task})).json["errorMessage"]
    assert audit_lines(lines) == [("vdeallocate", f"default/{task['Pod']['metadata']['name']}", "refused")]
    assert list(room.entries()) == [pod.metadata.uid]


async def test_an_unreadable_vdeallocate_is_logged(endpoint: Endpoint) -> None:
    with capture_logs() as lines:
        await endpoint.post("/scheduler/vdeallocate", {"task": 1})
    assert audit_lines(lines) == [("vdeallocate", "", "refused")]


async def test_a_released_reservation_is_logged(endpoint: Endpoint, room: Room) -> None:
    pod = await kept(endpoint)
    with capture_logs() as lines:
        await endpoint.post("/scheduler/vdeallocate", {"task": task_info(manifest_of(pod), node="n1")})
    assert audit_lines(lines) == [("vdeallocate", "default/p", "released")]
    assert room.entries() == {}


@pytest.mark.parametrize("how", ["another scheduler", "another demand"])
async def test_a_filter_cannot_release_reservations_of_foreign_pods(endpoint: Endpoint, room: Room, how: str) -> None:
    pod = await kept(endpoint)
    body = manifest_of(pod)
    if how == "another scheduler":
        room.plane.reconfigure(msgspec.structs.replace(room.plane.settings, schedulers="volcano"))
    else:
        body = asking(pod, 999)
    await filtered(endpoint, body, "/scheduler/predicates")
    assert list(room.entries()) == [pod.metadata.uid]


async def test_an_unauthenticated_caller_cannot_act_on_behalf_of_others(endpoint: Endpoint, room: Room) -> None:
    pod = await room.add_pod("p", 1)
    await endpoint.pass_filter(pod, path=FILTER)
    claim = {"X-Aliquot-Caller": "system:kube-scheduler at 10.0.0.1"}
    with capture_logs() as lines:
        await endpoint.send("POST", BIND, msgspec.json.encode(bind_args(pod)), claim)
    (line,) = (line for line in lines if line["event"] == "audit")
    assert (line["caller"], line["verdict"], line.get("on_behalf_of")) == ("anyone", "bound", None)
