"""gpushare's bind, as kube-scheduler calls it: always a 200, with the reason in `Error`."""

import asyncio

import msgspec
import pytest

from aliquot.dialects.gpushare import IDX
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.endpoints import asgi
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.model import Pod
from tests.factories import make_cards, pod_manifest
from tests.fakes import Fault, answer, cut_after, cut_before
from tests.integration.endpoints.endpoint import BIND, FILTER, Endpoint, bind_args


@pytest.fixture
async def one_node(endpoint: Endpoint) -> Endpoint:
    await endpoint.room.add_node()
    return endpoint


async def test_a_bound_pod_is_answered_with_an_empty_error(one_node: Endpoint) -> None:
    pod = await one_node.room.add_pod()
    assert await one_node.bind(pod) == ""
    assert one_node.room.api_pod(pod)["spec"]["nodeName"] == "n1"
    assert len(one_node.room.api.writes()) == 1


async def test_exactly_two_of_four_concurrent_binds_of_10_succeed_on_two_cards_of_15(one_node: Endpoint) -> None:
    """As the original gpushare does it."""
    pods = [await one_node.room.add_pod(f"p{number}", 10) for number in range(4)]
    for pod in pods:
        await one_node.pass_filter(pod)
    replies = await asyncio.gather(*(one_node.post(BIND, bind_args(pod)) for pod in pods))
    errors = [reply.json["Error"] for reply in replies]
    assert sorted(errors) == ["", "", *["Insufficient GPU Memory in one device"] * 2]
    bound = [pod for pod, error in zip(pods, errors, strict=True) if not error]
    cards = {one_node.room.api_pod(pod)["metadata"]["annotations"][IDX] for pod in bound}
    assert cards == {"0", "1"}
    assert len(one_node.room.api.bindings()) == 2


async def test_a_pod_missing_from_our_cache_is_read_from_the_api_server(one_node: Endpoint) -> None:
    created = one_node.room.api.registry.create(resources.PODS, "default", pod_manifest())
    pod = msgspec.convert(created.obj, Pod)
    assert one_node.room.plane.pods.get("default/p") is None
    assert await one_node.bind(pod) == ""


async def test_a_recreated_pod_is_read_from_the_api_server_while_our_cache_has_the_old_one(
    one_node: Endpoint,
) -> None:
    """Calls the handler without HTTP, which would give the cache time to catch up."""
    room = one_node.room
    first = await room.add_pod()
    room.api.registry.delete(resources.PODS, "default", "p", DeleteRequest(grace_seconds=0))
    second = msgspec.convert(room.api.registry.create(resources.PODS, "default", pod_manifest()).obj, Pod)
    assert room.plane.pods.get("default/p") == first
    routes = GpuShareEndpoint(room.plane).routes()
    asked = {"Pod": msgspec.to_builtins(second), "NodeNames": ["n1"]}
    await routes["POST", FILTER](asgi.Call(body=msgspec.json.encode(asked)))
    reply = await routes["POST", BIND](asgi.Call(body=msgspec.json.encode(bind_args(second))))
    assert msgspec.json.decode(reply.body) == {"Error": ""}
    await room.in_sync()
    assert list(room.entries()) == [second.metadata.uid]


async def test_no_room_is_reported_in_the_original_s_words(one_node: Endpoint) -> None:
    """Another pod was faster."""
    pod = await one_node.room.add_pod(gpu_mem=10)
    await one_node.pass_filter(pod)
    for name in ("a", "b"):
        await one_node.room.commit(await one_node.room.add_pod(name, 10), "n1")
    await one_node.room.in_sync()
    before = one_node.fingerprint()
    reply = await one_node.post(BIND, bind_args(pod))
    assert reply.json == {"Error": "Insufficient GPU Memory in one device"}
    assert one_node.fingerprint() == before


async def test_a_demand_for_zero_is_refused(one_node: Endpoint) -> None:
    pod = await one_node.room.add_pod(gpu_mem=0)
    assert await one_node.bind(pod) == (
        "no container of the pod asks for more than 0 of aliyun.com/gpu-mem or aliyun.com/gpu-count"
    )


async def test_a_rejected_binding_reports_the_api_server_s_words_and_a_retry_works(one_node: Endpoint) -> None:
    """As the original gpushare does it."""
    pod = await one_node.room.add_pod()
    one_node.room.api.script("POST", "/binding$", answer(403, message="no right to bind"))
    assert await one_node.bind(pod) == "no right to bind"
    assert one_node.room.used() == {}
    assert await one_node.bind(pod) == ""


@pytest.mark.parametrize("fault", [cut_before, cut_after], ids=["it was not made", "it was made"])
async def test_an_unanswered_binding_is_an_error_and_a_retry_is_safe(one_node: Endpoint, fault: Fault) -> None:
    pod = await one_node.room.add_pod()
    one_node.room.api.script("POST", "/binding$", fault)
    assert "got no answer from the API server" in await one_node.bind(pod)
    assert await one_node.bind(pod) == ""
    assert one_node.room.used() == {0: 3}


async def test_on_unequal_cards_each_pod_goes_where_it_fits(endpoint: Endpoint) -> None:
    await endpoint.room.add_node(make_cards(mib=(8192, 16384)))
    for name, units, card in (("a", 10, "1"), ("b", 6, "1"), ("c", 8, "0")):
        pod = await endpoint.room.add_pod(name, units)
        assert await endpoint.bind(pod) == ""
        assert endpoint.room.api_pod(pod)["metadata"]["annotations"][IDX] == card
