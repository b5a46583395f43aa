"""Reservations of endpoints without bind: what a pod holds until it is bound, and what is not trusted meanwhile."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from aliquot.control.state.events import Marked
from aliquot.embedded.api import resources
from aliquot.endpoints import asgi, native
from aliquot.endpoints.admission import AdmissionEndpoint
from aliquot.endpoints.nvidia import NvidiaEndpoint
from aliquot.endpoints.volcano import volcano_routes
from aliquot.model import Part, Placement, Pod, cut
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest, make_cards, make_placement, pod_manifest
from tests.fakes import FakeClock
from tests.integration.control.test_audit import audit_of
from tests.integration.endpoints.endpoint import Endpoint, bind_args
from tests.integration.endpoints.volcano import ALLOCATED, manifest_of, task_info
from tests.integration.endpoints.wire import names_call, opened
from tests.integration.room import Room

PREDICATES = "/scheduler/predicates"


@pytest.fixture
async def endpoint(room: Room) -> AsyncIterator[Endpoint]:
    """gpu-admission's routes, Volcano's and our own; one node with two cards of 15 units."""
    await room.add_node(make_cards())
    volcano = volcano_routes(room.plane, "admission", None, "/scheduler")
    async with opened(
        room, {**AdmissionEndpoint(room.plane).routes(), **volcano, **native.routes(room.plane)}
    ) as open_:
        yield open_


async def asked(endpoint: Endpoint, pod: Pod | dict[str, Any], node: str = "n1") -> list[str]:
    manifest = manifest_of(pod) if isinstance(pod, Pod) else pod
    reply = await endpoint.post(PREDICATES, names_call(manifest, [node]))
    passed: list[str] = reply.json["NodeNames"]
    return passed


async def bind_as_others(room: Room, pod: Pod, node: str = "n1") -> None:
    """Bind as kube-scheduler does, without a word about cards."""
    target, meta = {"kind": "Node", "name": node}, {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
    await room.client.bind({"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}, timeout=20)
    await room.in_sync()


async def placed_late(room: Room, pod: Pod) -> Pod:
    """The pod after a pass of late placement."""
    await room.plane.late.look()
    await room.in_sync()
    now = room.plane.pods.get(pod.key)
    assert now is not None
    return now


async def bound_by_others(room: Room, pod: Pod) -> Pod:
    await bind_as_others(room, pod)
    return await placed_late(room, pod)


def cards_of(pod: Pod) -> list[str]:
    record = msgspec.json.decode(pod.metadata.annotations.get(PLACEMENT, '{"containers":{}}'))
    return [part["uuid"] for parts in record["containers"].values() for part in parts]


def oversold(room: Room) -> list[str]:
    return list(room.plane.cluster.ledger.oversold("n1"))


# -- a pod that grows


async def growing(room: Room) -> Pod:
    """A pod of 1 GiB whose size a user can change; 12 units of each card are in use."""
    for name in ("a", "b"):
        await room.commit(await room.add_pod(name, 12), "n1")
    container = container_manifest(gpu_mem=None, resources={"limits": {"aliquot.io/gpu": "1"}})
    return await room.add_pod("grows", containers=[container], metadata={"annotations": {"aliquot.io/memory": "1Gi"}})


@pytest.mark.parametrize("when", ["before it is bound", "after it is bound"])
async def test_a_pod_that_has_grown_does_not_get_its_smaller_reservation(
    endpoint: Endpoint, room: Room, when: str
) -> None:
    pod = await growing(room)
    assert await asked(endpoint, pod) == ["n1"]
    larger = {"aliquot.io/memory": "15Gi"}
    if when == "before it is bound":
        await room.annotate(pod, **larger)
        now = await bound_by_others(room, pod)
    else:
        await bind_as_others(room, pod)
        await room.annotate(pod, **larger)
        now = await placed_late(room, pod)
    assert cards_of(now) == []
    assert oversold(room) == []


async def test_a_pod_that_has_grown_is_not_bound_with_its_reservation(endpoint: Endpoint, room: Room) -> None:
    pod = await growing(room)
    assert await asked(endpoint, pod) == ["n1"]
    await room.annotate(pod, **{"aliquot.io/memory": "15Gi"})
    reply = await endpoint.post("/aliquot/bind", bind_args(pod))
    assert "room" in reply.json["Error"]
    assert oversold(room) == []


# -- a card that becomes unhealthy


@pytest.mark.parametrize("binder", ["kube-scheduler", "Aliquot"])
async def test_a_reservation_on_a_card_that_became_unhealthy_is_not_used(
    endpoint: Endpoint, room: Room, binder: str
) -> None:
    pod = await room.add_pod("p", 3)
    assert await asked(endpoint, pod) == ["n1"]
    room.plane.cluster.apply(Marked("n1", [0]))
    if binder == "Aliquot":
        assert (await endpoint.post("/aliquot/bind", bind_args(pod))).json == {"Error": ""}
        await room.in_sync()
        now = room.plane.pods.get(pod.key)
        assert now is not None
    else:
        now = await bound_by_others(room, pod)
    assert cards_of(now) == [make_cards().gpus[1].uuid]


# -- records that a user writes


@pytest.mark.parametrize("kept", [True, False], ids=["over a reservation", "without a reservation"])
async def test_a_record_from_before_the_binding_is_not_trusted(endpoint: Endpoint, room: Room, kept: bool) -> None:
    await room.commit(await room.add_pod("full", 15), "n1")
    forged = {PLACEMENT: write_placement(make_placement(make_cards(), 0, main=3072))}
    pod = await room.add_pod("forged", 3, metadata={"annotations": forged})
    if kept:
        assert await asked(endpoint, pod) == ["n1"]
    now = await bound_by_others(room, pod)
    assert cards_of(now) == [make_cards().gpus[1].uuid]
    assert oversold(room) == []


async def test_every_server_charges_a_record_that_the_user_predicted(room: Room) -> None:
    """The leader binds the pod with exactly this record, and fails before the pod has started."""
    await room.add_node(make_cards())
    gpu = make_cards().gpus[0]
    part = Placement("n1", "aliquot", {"main": (cut(Part(whole=True), gpu, 1024),)})
    foretold = {PLACEMENT: write_placement(part)}
    container = container_manifest(gpu_mem=None, resources={"limits": {"aliquot.io/gpu": "1"}})
    pod = await room.add_pod("p", containers=[container], metadata={"annotations": foretold})
    async with Room(room.api, room.client, FakeClock()) as follower:
        await room.commit(pod, "n1")
        await room.in_sync()
        assert bound_pod(room, pod).metadata.annotations[PLACEMENT] == foretold[PLACEMENT]
        await follower.in_sync()
        assert (room.used(), follower.used()) == ({0: 15}, {0: 15})
        await follower.plane.late.look()
        await follower.in_sync()
        assert follower.used() == {0: 15}
        assert cards_of(bound_pod(follower, pod)) == [make_cards().gpus[0].uuid], "its node may be handing it over"
        writes = len(room.api.writes())
        await follower.plane.late.look()
        assert len(room.api.writes()) == writes, "and it is settled"
        assert await audit_of(follower).look() == []


def bound_pod(room: Room, pod: Pod) -> Pod:
    now = room.plane.pods.get(pod.key)
    assert now is not None
    return now


# -- nodes of another agent


@pytest.mark.parametrize("path", [PREDICATES, "/apis/metrics.nvidia.com/v1alpha1/schedule/filter"])
async def test_a_node_where_nobody_would_write_the_placement_is_refused(room: Room, path: str) -> None:
    await room.add_plain_node("old", {GPU_MEM: "30", GPU_COUNT: "2"})
    async with opened(
        room, {**AdmissionEndpoint(room.plane).routes(), **NvidiaEndpoint(room.plane).routes()}
    ) as endpoint:
        answer = (await endpoint.post(path, names_call(pod_manifest(gpu_mem=3), ["old"]))).json
    assert answer["NodeNames"] == []
    assert "no inventory" in answer["FailedNodes"]["old"]


# -- pods that do not exist


async def test_a_pod_that_is_not_in_the_cluster_gets_no_reservation(endpoint: Endpoint, room: Room) -> None:
    ghost = pod_manifest("ghost", 15, metadata={"uid": "ghost"})
    assert await asked(endpoint, ghost) == ["n1"]
    assert room.entries() == {}


async def test_a_pod_missing_from_our_cache_gets_a_reservation(room: Room) -> None:
    """Calls the handler without HTTP, which would give the cache time to catch up."""
    await room.add_node(make_cards())
    created = room.api.registry.create(resources.PODS, "default", pod_manifest("p", 15)).obj
    predicates = AdmissionEndpoint(room.plane).routes()["POST", PREDICATES]
    await predicates(asgi.Call(body=msgspec.json.encode(names_call(created, ["n1"]))))
    assert list(room.entries()) == [created["metadata"]["uid"]]


async def test_a_pod_without_a_uid_gets_no_reservation(endpoint: Endpoint, room: Room) -> None:
    assert await asked(endpoint, pod_manifest("p", 15)) == ["n1"]
    assert room.entries() == {}


async def test_volcano_does_not_reserve_a_second_part_for_a_bound_pod(endpoint: Endpoint, room: Room) -> None:
    await room.add_node(make_cards("n2"))
    pod = await room.add_pod("p", 3)
    await room.commit(pod, "n1")
    await room.in_sync()
    task = task_info(manifest_of(pod), status=ALLOCATED, node="n2")
    assert (await endpoint.post("/scheduler/vallocate", {"task": task})).json == {"errorMessage": ""}
    assert room.entries("n2") == {}


async def test_volcano_releases_the_reservation_on_the_node_that_it_names(endpoint: Endpoint, room: Room) -> None:
    await room.add_node(make_cards("n2"))
    pod = await room.add_pod("p", 3)
    tasks = {node: {"task": task_info(manifest_of(pod), status=ALLOCATED, node=node)} for node in ("n1", "n2")}
    for node in ("n1", "n2"):
        await endpoint.post("/scheduler/vallocate", tasks[node])
    await endpoint.post("/scheduler/vdeallocate", tasks["n1"])
    assert (len(room.entries("n1")), len(room.entries("n2"))) == (0, 1)
    await endpoint.post("/scheduler/vdeallocate", tasks["n2"])
    assert len(room.entries("n2")) == 0
