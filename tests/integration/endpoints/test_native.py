"""Our own routes: prioritize and preempt, for every dialect's pods."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from aliquot.endpoints import native
from aliquot.endpoints.asgi import Routes
from aliquot.model import Pod
from tests.factories import make_cards, pod_manifest
from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.endpoints.serving import served
from tests.integration.room import Room

PREEMPT = "/aliquot/preempt"
LOW: dict[str, Any] = {"priority": 1}
HIGH: dict[str, Any] = {"priority": 100}


@pytest.fixture
async def native_endpoint(room: Room) -> AsyncIterator[Endpoint]:
    async with served(Routes(native.routes(room.plane))) as url, aiohttp.ClientSession() as session:
        yield Endpoint(session, url, room)


async def bound(room: Room, name: str, units: int, node: str = "n1", index: int = 0, **spec: Any) -> Pod:
    """A pod that holds units of a card."""
    metadata = {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": str(index)}}
    return await room.add_pod(name, units, metadata=metadata, node=node, **spec)


# -- prioritize


async def test_scores_go_from_0_to_10_in_the_order_of_the_call(native_endpoint: Endpoint) -> None:
    for name in ("n1", "n2", "n3"):
        await native_endpoint.room.add_node(make_cards(name, mib=(16384,)))
    await bound(native_endpoint.room, "half", 8, "n2")
    await bound(native_endpoint.room, "quarter", 4, "n3")
    reply = await native_endpoint.post(
        "/aliquot/prioritize", {"Pod": pod_manifest(gpu_mem=1), "NodeNames": ["n3", "n1", "n2", "ghost"]}
    )
    scores = {entry["Host"]: entry["Score"] for entry in reply.json}
    assert list(scores) == ["n3", "n2"], "an empty node is the worst to break into, and has no point"
    assert scores["n2"] == 10
    assert 0 < scores["n3"] < 10


@pytest.mark.parametrize(
    ("gpu_mem", "answer"),
    [
        pytest.param(1, b'[{"Host":"n1","Score":1}]', id="with GPU: the first by name"),
        pytest.param(None, b"[]", id="without GPU"),
    ],
)
async def test_equal_nodes_are_omitted(native_endpoint: Endpoint, gpu_mem: int | None, answer: bytes) -> None:
    names = ["n3", "n1", "n2"]
    for name in names:
        await native_endpoint.room.add_node(make_cards(name))
    reply = await native_endpoint.post(
        "/aliquot/prioritize", {"Pod": pod_manifest(gpu_mem=gpu_mem), "NodeNames": names}
    )
    assert reply.body == answer


async def test_an_unreadable_prioritize_call_is_a_400(native_endpoint: Endpoint) -> None:
    reply = await native_endpoint.send("POST", "/aliquot/prioritize", b"{")
    assert reply.status == 400
    assert "cannot decode" in reply.text


# -- preempt


@pytest.fixture
async def crowded(native_endpoint: Endpoint) -> tuple[Endpoint, Mapping[str, Pod]]:
    """Two cards of 15: 8 are in use on the first, 8 and 4 on the second."""
    await native_endpoint.room.add_node(make_cards("n1", mib=(15 * 1024, 15 * 1024)))
    sizes = {"a": (8, 0), "b": (8, 1), "c": (4, 1)}
    pods = {
        name: await bound(native_endpoint.room, name, units, index=card, **LOW) for name, (units, card) in sizes.items()
    }
    return native_endpoint, pods


async def preempted(endpoint: Endpoint, call: Mapping[str, Any], units: int | None = 15) -> dict[str, list[str]]:
    """UIDs of the victims by node."""
    reply = await endpoint.post(PREEMPT, {"Pod": pod_manifest("big", units, **HIGH), **call})
    assert reply.status == 200
    assert list(reply.json) == ["NodeNameToMetaVictims"]
    return {
        node: [pod["UID"] for pod in victims["Pods"]] for node, victims in reply.json["NodeNameToMetaVictims"].items()
    }


def meta(*uids: str) -> dict[str, Any]:
    return {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 2}}}


@pytest.mark.parametrize(
    ("proposed", "victims"),
    [
        pytest.param("a", "a", id="a victim that frees a card is enough"),
        pytest.param("b", "bc", id="a victim that does not help stays, and the cheapest that helps is added"),
        pytest.param("bc", "bc", id="two victims that free a card are enough"),
        pytest.param("", "a", id="an empty list of victims is completed"),
    ],
)
async def test_victims_are_completed_until_one_card_is_free(
    crowded: tuple[Endpoint, Mapping[str, Pod]], proposed: str, victims: str
) -> None:
    endpoint, pods = crowded
    answer = await preempted(endpoint, meta(*(pods[name].metadata.uid for name in proposed)))
    assert answer == {"n1": [pods[name].metadata.uid for name in victims]}


async def test_whole_victims_are_answered_with_uids(crowded: tuple[Endpoint, Mapping[str, Pod]]) -> None:
    endpoint, pods = crowded
    uid = pods["a"].metadata.uid
    whole = {"n1": {"Pods": [{"metadata": {"name": "a", "uid": uid}}], "NumPDBViolations": 0}}
    assert await preempted(endpoint, {"NodeNameToVictims": whole, "NodeNameToMetaVictims": None}) == {"n1": [uid]}


async def test_request_keys_are_read_in_any_case(crowded: tuple[Endpoint, Mapping[str, Pod]]) -> None:
    endpoint, pods = crowded
    uid = pods["a"].metadata.uid
    call = {"pod": pod_manifest("big", 15, **HIGH), "nodenametometavictims": {"n1": {"pods": [{"uid": uid}]}}}
    reply = await endpoint.post(PREEMPT, call)
    assert reply.json == {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}}


async def test_a_node_where_no_victim_helps_is_omitted(crowded: tuple[Endpoint, Mapping[str, Pod]]) -> None:
    endpoint, pods = crowded
    assert await preempted(endpoint, meta(pods["a"].metadata.uid), units=16) == {}


async def test_pods_of_the_same_priority_are_not_added(native_endpoint: Endpoint) -> None:
    await native_endpoint.room.add_node(make_cards("n1", mib=(15 * 1024,)))
    held = await bound(native_endpoint.room, "held", 8, **HIGH)
    low = await bound(native_endpoint.room, "low", 4, **LOW)
    assert held.spec.priority == HIGH["priority"]
    assert await preempted(native_endpoint, meta(low.metadata.uid)) == {}


async def test_victims_are_sorted_by_priority_since_nodes_are_compared_by_the_first(
    native_endpoint: Endpoint,
) -> None:
    await native_endpoint.room.add_node(make_cards("n1", mib=(15 * 1024,)))
    low = await bound(native_endpoint.room, "low", 8, priority=0)
    high = await bound(native_endpoint.room, "high", 7, priority=50)
    assert await preempted(native_endpoint, meta(low.metadata.uid)) == {"n1": [high.metadata.uid, low.metadata.uid]}


async def test_a_pod_that_kube_scheduler_no_longer_counts_is_not_a_victim(native_endpoint: Endpoint) -> None:
    await native_endpoint.room.add_node(make_cards("n1", mib=(15 * 1024,)))
    ending = await bound(native_endpoint.room, "ending", 8, **LOW)
    running = {"name": "main", "state": {"running": {}}}
    await native_endpoint.room.report(ending, phase="Failed", containerStatuses=[running])
    other = await bound(native_endpoint.room, "other", 4, **LOW)
    assert await preempted(native_endpoint, meta(other.metadata.uid)) == {}


async def test_a_pod_without_gpu_gets_the_proposed_victims(
    crowded: tuple[Endpoint, Mapping[str, Pod]],
) -> None:
    endpoint, pods = crowded
    uid = pods["b"].metadata.uid
    assert await preempted(endpoint, meta(uid), units=None) == {"n1": [uid]}


@pytest.mark.parametrize("units", [1, None], ids=["of a GPU pod", "of a pod without GPU"])
async def test_a_node_that_needs_no_victim_is_omitted(native_endpoint: Endpoint, units: int | None) -> None:
    """kube-scheduler treats an empty list of victims as an error of the extender."""
    await native_endpoint.room.add_node(make_cards("n1"))
    assert await preempted(native_endpoint, meta(), units=units) == {}


# -- while victims end


async def test_the_pod_waits_for_its_nominated_node_while_victims_end_there(
    crowded: tuple[Endpoint, Mapping[str, Pod]],
) -> None:
    endpoint, pods = crowded
    big = pod_manifest("big", 15, **HIGH) | {"status": {"nominatedNodeName": "n1"}}
    call = {"Pod": big, "NodeNames": ["n1"]}
    before = (await endpoint.post("/aliquot/filter", call)).json
    assert before["FailedAndUnresolvableNodes"] == before["FailedNodes"] == {"n1": before["FailedNodes"]["n1"]}
    await endpoint.room.delete_pod(pods["a"], grace=30)
    while_it_ends = (await endpoint.post("/aliquot/filter", call)).json
    assert while_it_ends["FailedNodes"] == before["FailedNodes"]
    assert while_it_ends["FailedAndUnresolvableNodes"] is None
