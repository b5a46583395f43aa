"""Mutating verbs act only on pods in the cluster that request our resources and whose scheduler we serve. A bind also
needs a node where a filter recently passed the pod. Any other call changes nothing."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from aliquot.control.placing.filter_results import SECONDS
from aliquot.embedded.api import resources
from aliquot.endpoints import native
from aliquot.endpoints.admission import AdmissionEndpoint
from aliquot.endpoints.volcano import volcano_routes
from aliquot.model import Pod
from tests.factories import make_cards, pod_manifest
from tests.integration.endpoints.endpoint import NOT_PASSED, Endpoint, bind_args
from tests.integration.endpoints.volcano import ALLOCATED, manifest_of, pod_of, task_info
from tests.integration.endpoints.wire import names_call, opened
from tests.integration.room import Room

SERVED = frozenset({"default-scheduler", "gpu-scheduler"})
FILTER, BIND = "/aliquot/filter", "/aliquot/bind"
CORDON = {"spec": {"unschedulable": True}}
DAEMON = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]}


@pytest.fixture
async def endpoint(room: Room) -> AsyncIterator[Endpoint]:
    """Our own routes, gpu-admission's and Volcano's; n1 and n2 with two cards of 15 units; n3 is cordoned."""
    for name in ("n1", "n2"):
        await room.add_node(make_cards(name))
    await room.add_node(make_cards("n3"), **CORDON)
    settings = room.plane.settings
    limited = replace(settings.commit, claims_per_namespace=3)
    room.plane.reconfigure(replace(settings, schedulers=",".join(SERVED), commit=limited))
    volcano = volcano_routes(room.plane, "admission", None, "/scheduler")
    async with opened(
        room, {**AdmissionEndpoint(room.plane).routes(), **volcano, **native.routes(room.plane)}
    ) as open_:
        yield open_


async def bound(endpoint: Endpoint, pod: Pod, node: str = "n1") -> str:
    error: str = (await endpoint.post(BIND, bind_args(pod, node))).json["Error"]
    return error


async def allocated(endpoint: Endpoint, pod: dict[str, Any], node: str = "n1") -> str:
    task = task_info(pod, status=ALLOCATED, node=node)
    why: str = (await endpoint.post("/scheduler/vallocate", {"task": task})).json["errorMessage"]
    return why


# -- bind


ATTACKS = [
    pytest.param({}, None, "n1", NOT_PASSED, id="a pod that was never filtered"),
    pytest.param({}, "n2", "n1", NOT_PASSED, id="a node where it did not pass"),
    pytest.param({"gpu_mem": 16}, "n1", "n1", NOT_PASSED, id="a pod that the filter refused"),
    pytest.param({"gpu_mem": None}, "n1", "n1", "the pod requests no GPU", id="a pod without GPU"),
    pytest.param(
        {"schedulerName": "volcano"},
        "n1",
        "n1",
        "the pod uses scheduler volcano; this server serves default-scheduler, gpu-scheduler",
        id="a pod of another scheduler",
    ),
    pytest.param({}, "n3", "n3", "node n3 is cordoned", id="a cordoned node"),
]


@pytest.mark.parametrize(("pod", "filtered", "node", "why"), ATTACKS)
async def test_an_illegitimate_bind_is_refused(
    endpoint: Endpoint, room: Room, pod: dict[str, Any], filtered: str | None, node: str, why: str
) -> None:
    target = await room.add_pod("target", **pod)
    if filtered is not None:
        await endpoint.pass_filter(target, filtered, FILTER)
    error = await bound(endpoint, target, node)
    assert error.startswith(why)
    assert target.metadata.uid not in error
    assert room.api.bindings() == []
    assert room.entries(node) == {}


ALLOWED = [
    pytest.param({}, "n1", id="a pod that passed there"),
    pytest.param({"schedulerName": "gpu-scheduler"}, "n1", id="of another scheduler that we serve"),
    pytest.param(DAEMON, "n3", id="a pod that tolerates a cordoned node, like DaemonSet pods"),
]


@pytest.mark.parametrize(("pod", "node"), ALLOWED)
async def test_a_pod_is_bound_where_it_passed(endpoint: Endpoint, room: Room, pod: dict[str, Any], node: str) -> None:
    target = await room.add_pod("target", **pod)
    await endpoint.pass_filter(target, node, FILTER)
    assert await bound(endpoint, target, node) == ""


async def test_a_bind_may_come_as_late_as_kube_scheduler_allows(endpoint: Endpoint, room: Room) -> None:
    soon, late = await room.add_pod("soon"), await room.add_pod("late")
    for pod in (soon, late):
        await endpoint.pass_filter(pod, path=FILTER)
    await room.clock.move(SECONDS - 1)
    assert await bound(endpoint, soon) == ""
    await room.clock.move(1)
    assert await bound(endpoint, late) == NOT_PASSED


async def test_the_last_filter_counts(endpoint: Endpoint, room: Room) -> None:
    pod = await room.add_pod()
    await endpoint.pass_filter(pod, "n1", FILTER)
    await endpoint.pass_filter(pod, "n2", FILTER)
    assert await bound(endpoint, pod, "n1") == NOT_PASSED
    assert await bound(endpoint, pod, "n2") == ""


async def test_a_node_in_the_column_of_a_deleted_node_has_not_passed(endpoint: Endpoint, room: Room) -> None:
    pod = await room.add_pod()
    await endpoint.pass_filter(pod, "n2", FILTER)
    await room.remove_node("n2")
    await room.add_node(make_cards("n4"))
    assert await bound(endpoint, pod, "n4") == NOT_PASSED.replace("n1", "n4")


async def test_a_server_without_filter_results_refuses_until_it_filters(endpoint: Endpoint, room: Room) -> None:
    """Like a new leader: kube-scheduler filters the pod again after the error."""
    pod = await room.add_pod()
    await endpoint.pass_filter(pod, path=FILTER)
    async with (
        Room(room.api, room.client, room.clock) as successor,
        opened(successor, native.routes(successor.plane)) as anew,
    ):
        assert await bound(anew, pod) == NOT_PASSED
        await anew.pass_filter(pod, path=FILTER)
        assert await bound(anew, pod) == ""


async def test_a_repeated_bind_of_a_bound_pod_gets_the_same_answer(endpoint: Endpoint, room: Room) -> None:
    pod = await room.add_pod()
    await endpoint.pass_filter(pod, path=FILTER)
    assert await bound(endpoint, pod) == ""
    await room.in_sync()
    assert len(room.plane.passes) == 0
    assert await bound(endpoint, pod) == ""


async def test_invented_pods_do_not_evict_the_filter_results_of_others(endpoint: Endpoint, room: Room) -> None:
    pod = await room.add_pod()
    await endpoint.pass_filter(pod, path=FILTER)
    fleet = room.plane.cluster.fleet
    for number in range(30_000):
        room.plane.passes.put(f"made-up-{number}", fleet, [0], asked=0)
    assert len(room.plane.passes) == 1_001
    assert await bound(endpoint, pod) == ""


# -- reservations


async def test_volcano_reserves_nothing_for_pods_that_are_not_in_the_cluster(endpoint: Endpoint, room: Room) -> None:
    for number in range(16):
        assert await allocated(endpoint, pod_of(f"invented-{number}", 15)) == f'pods "invented-{number}" not found'
    assert room.entries() == {}


async def test_a_filter_reserves_nothing_for_pods_that_are_not_in_the_cluster(endpoint: Endpoint, room: Room) -> None:
    for number in range(16):
        invented = pod_of(f"invented-{number}", 15)
        reply = await endpoint.post("/scheduler/predicates", names_call(invented, ["n1"]))
        assert reply.json["NodeNames"] == ["n1"]
    assert room.entries() == {}


@pytest.mark.parametrize("verb", ["filter", "vallocate"])
async def test_a_reservation_has_the_size_of_the_pod_in_the_cluster_not_of_the_body(
    endpoint: Endpoint, room: Room, verb: str
) -> None:
    pod = manifest_of(await room.add_pod("small", 1))
    large = {**pod, "spec": pod_manifest("small", 15)["spec"]}
    if verb == "filter":
        await endpoint.post("/scheduler/predicates", names_call(large, ["n1"]))
    else:
        assert await allocated(endpoint, large) == ""
    assert room.used() == {0: 1}


@pytest.mark.parametrize("verb", ["filter", "vallocate"])
async def test_nothing_is_reserved_for_pods_of_other_schedulers(endpoint: Endpoint, room: Room, verb: str) -> None:
    pod = manifest_of(await room.add_pod("theirs", 15, schedulerName="theirs"))
    if verb == "filter":
        await endpoint.post("/scheduler/predicates", names_call(pod, ["n1"]))
    else:
        assert "uses scheduler theirs" in await allocated(endpoint, pod)
    assert room.entries() == {}


async def test_a_body_that_names_another_pod_does_not_release_a_reservation(endpoint: Endpoint, room: Room) -> None:
    pod = manifest_of(await room.add_pod("p", 15))
    await endpoint.post("/scheduler/predicates", names_call(pod, ["n1"]))
    other = {**pod, "metadata": {**pod["metadata"], "name": "other"}}
    await endpoint.post("/scheduler/predicates", names_call(other, ["n2"]))
    assert list(room.entries()) == [pod["metadata"]["uid"]]


# -- the limit of a namespace


async def test_reservations_of_a_namespace_are_limited(endpoint: Endpoint, room: Room) -> None:
    pods = [manifest_of(await room.add_pod(f"p{number}", 1)) for number in range(4)]
    room.api.registry.create(resources.NAMESPACES, "", {"metadata": {"name": "other"}})
    other = manifest_of(await room.add_pod("other", 1, namespace="other"))
    for pod in pods[:3]:
        assert await allocated(endpoint, pod) == ""
    why = "namespace default already has 3 unbound pods with reserved or claimed cards, the maximum"
    assert (await allocated(endpoint, pods[3])).startswith(why)
    reply = await endpoint.post("/scheduler/predicates", names_call(pods[3], ["n1"]))
    assert reply.json["Error"].startswith(why)
    assert await allocated(endpoint, pods[0], "n2") == "", "it moves"
    assert await allocated(endpoint, other) == "", "another namespace has its own"
    assert len(room.entries("n1")) + len(room.entries("n2")) == 4


async def test_every_filter_that_changes_a_reservation_writes_an_audit_line(endpoint: Endpoint, room: Room) -> None:
    pods = [await room.add_pod(f"p{number}", 1) for number in range(4)]

    async def audited(pod: Pod, *nodes: str) -> list[tuple[str, str, str]]:
        with capture_logs() as lines:
            await endpoint.post("/scheduler/predicates", names_call(manifest_of(pod), list(nodes)))
        told = [line for line in lines if line["event"] == "audit"]
        assert all((line["verb"], line["pod"]) == ("filter", pod.key) for line in told)
        assert all(("why" in line) == (line["log_level"] == "warning") for line in told)
        return [(line["log_level"], line["node"], line["verdict"]) for line in told]

    for pod in pods[:3]:
        assert await audited(pod, "n1") == [("info", "n1", "reserved")]
    assert await audited(pods[0], "n1") == [("info", "n1", "reserved")]
    assert await audited(pods[3], "n1") == [("warning", "", "refused")]
    assert await audited(pods[0], "n2") == [("info", "n1", "released"), ("info", "n2", "reserved")]
    assert await audited(pods[0], "unknown") == [("info", "n2", "released")]
    assert await audited(pods[0], "unknown") == []


async def test_claims_of_binds_count_against_the_namespace_limit(endpoint: Endpoint, room: Room) -> None:
    pods = [await room.add_pod(f"p{number}", 1) for number in range(4)]
    for pod in pods[:3]:
        assert await allocated(endpoint, manifest_of(pod)) == ""
    await endpoint.pass_filter(pods[3], path=FILTER)
    assert (await bound(endpoint, pods[3])).startswith("namespace default already has 3 unbound pods")
    await endpoint.pass_filter(pods[0], path=FILTER)
    assert await bound(endpoint, pods[0]) == "", "what is kept for it becomes its claim"
    await room.in_sync()
    assert await bound(endpoint, pods[3]) == "", "one is bound by now"
