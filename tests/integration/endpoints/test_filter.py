"""gpushare's filter, as kube-scheduler calls it."""

from typing import Any

import msgspec
import pytest

from aliquot.dialects.gpushare import IDX
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest, make_cards, node_manifest, pod_manifest
from tests.integration.endpoints.endpoint import FILTER, Endpoint

NO_ROOM = "Insufficient GPU Memory in one device"
NEVER = f"{NO_ROOM}: request exceeds the node's GPUs even when empty"
NO_SHARE = "The node is not for GPU share, need skip"
UNKNOWN = "node not found"
KEYS = ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]


@pytest.fixture
async def fleet(endpoint: Endpoint) -> Endpoint:
    """Like the original's test: n1 has 4069 left on each card, n2 has 8138 left on its first."""
    for name, mib in (("n1", (16276, 16276)), ("n2", (8138, 4069))):
        await endpoint.room.add_node(make_cards(name, mib=mib, unit_mib=1))
    for index in ("0", "1"):
        await endpoint.room.add_pod(f"held-{index}", 12207, metadata={"annotations": {IDX: index}}, node="n1")
    await endpoint.room.add_plain_node("cpu", {})
    await endpoint.room.add_plain_node("nocount", {GPU_MEM: "30"})
    await endpoint.room.add_plain_node("nomem", {GPU_COUNT: "2"})
    return endpoint


async def test_a_filter_answer_has_all_five_keys_and_a_reason_for_every_refused_node(
    fleet: Endpoint,
) -> None:
    answer = await fleet.filter(8138, "n1", "n2", "cpu", "nocount", "ghost")
    assert list(answer) == KEYS
    refused = {"n1": NO_ROOM, "cpu": NO_SHARE, "nocount": NEVER, "ghost": UNKNOWN}
    assert answer == {
        "Nodes": None,
        "NodeNames": ["n2"],
        "FailedNodes": refused,
        "FailedAndUnresolvableNodes": refused,
        "Error": "",
    }


SCENARIOS = [
    pytest.param(8138, ["n1", "n2"], ["n2"], id="8138 does not fit two cards with 4069 left each"),
    pytest.param(4069, ["n1", "n2"], ["n1", "n2"], id="4069 fits on both nodes"),
    pytest.param(4069, ["n2", "n1"], ["n2", "n1"], id="the order of the call is kept"),
    pytest.param(8139, ["n1", "n2"], [], id="one more than the largest card fits nowhere"),
    pytest.param(None, ["cpu", "ghost", "n1"], ["cpu", "ghost", "n1"], id="a pod without GPU passes everywhere"),
    pytest.param(1, ["nomem"], [], id="a node with a count and no memory is refused"),
    pytest.param(1, [], [], id="an empty list of nodes is no fault"),
    pytest.param("1k", ["n2"], ["n2"], id="1k is 1000"),
    pytest.param("500m", ["n2"], ["n2"], id="half a unit is rounded up to one"),
    pytest.param(5, ["n2", "n2"], ["n2", "n2"], id="a repeated name is answered twice"),
]


@pytest.mark.parametrize(("gpu_mem", "names", "passed"), SCENARIOS)
async def test_nodes_pass_if_a_card_has_enough_left(
    fleet: Endpoint, gpu_mem: Any, names: list[str], passed: list[str]
) -> None:
    before = fleet.fingerprint()
    answer = await fleet.filter(gpu_mem, *names)
    assert answer["NodeNames"] == passed
    assert set(answer["FailedNodes"]) == set(names) - set(passed)
    assert answer["FailedNodes"] == (answer["FailedAndUnresolvableNodes"] or {})
    assert fleet.fingerprint() == before


@pytest.mark.parametrize(
    ("gpu_mem", "text"),
    [
        pytest.param(0, "no container of the pod asks for more than 0 of aliyun.com/gpu-mem", id="zero"),
        pytest.param("-1", "container main, limits, aliyun.com/gpu-mem: '-1' is negative", id="negative"),
        pytest.param("lots", "'lots' is not a Kubernetes quantity (such as 2, 1500m, 4Gi)", id="not a quantity"),
        pytest.param("10G", "write 10, not 10G", id="bytes instead of units"),
        pytest.param("1e999", "'1e999' is larger than any quantity can be", id="too large for a quantity"),
        pytest.param("9" * 9999, "is not a Kubernetes quantity", id="ten thousand digits"),
    ],
)
async def test_a_bad_demand_is_refused_on_every_node_without_an_error(fleet: Endpoint, gpu_mem: Any, text: str) -> None:
    before = fleet.fingerprint()
    answer = await fleet.filter(gpu_mem, "n1", "cpu")
    assert (answer["Error"], answer["NodeNames"]) == ("", [])
    assert list(answer["FailedNodes"]) == ["n1", "cpu"]
    for why in answer["FailedNodes"].values():
        assert text in why
        assert len(why) < 500
    assert fleet.fingerprint() == before


async def test_a_refusal_keeps_its_text_while_the_result_stays_the_same(endpoint: Endpoint) -> None:
    """A changing text would make kube-scheduler retry in a loop."""
    await endpoint.room.add_node(make_cards(mib=(15360,)))
    texts = set()
    for name, units in (("a", 10), ("b", 1), ("c", 2)):
        pod = await endpoint.room.add_pod(name, units)
        assert await endpoint.bind(pod) == ""
        texts.add((await endpoint.filter(9, "n1"))["FailedNodes"]["n1"])
    assert texts == {NO_ROOM}


async def test_lower_case_keys_are_read_too(fleet: Endpoint) -> None:
    reply = await fleet.post(FILTER, {"pod": pod_manifest(gpu_mem=8138), "nodenames": ["n1", "n2"], "nodes": None})
    assert reply.json["NodeNames"] == ["n2"]


async def test_whole_nodes_are_returned_byte_for_byte(fleet: Endpoint) -> None:
    small = b'{"kind":"Node" ,"metadata":{"name":"n2","x":[1.50,  {}]},"unknown":"\\u00e9"}'
    large = msgspec.json.encode(node_manifest("n1"))
    pod = msgspec.json.encode(pod_manifest(gpu_mem=8138))
    body = b'{"Pod":%b,"Nodes":{"metadata":{},"items":[%b,%b]},"NodeNames":null}' % (pod, large, small)
    reply = await fleet.send("POST", FILTER, body)
    assert b'"items":[%b]' % small in reply.body
    assert reply.json["NodeNames"] == ["n2"]
    assert reply.json["FailedNodes"] == {"n1": NO_ROOM}


async def test_the_list_of_whole_nodes_is_null_if_none_passes(fleet: Endpoint) -> None:
    call = {"Pod": pod_manifest(gpu_mem=99999), "Nodes": {"metadata": {}, "items": [node_manifest("n1")]}}
    assert (await fleet.post(FILTER, call)).json["Nodes"] == {"metadata": {}, "items": None}


async def test_names_take_precedence_over_whole_nodes(fleet: Endpoint) -> None:
    both = {"Nodes": {"items": [node_manifest("n1")]}}
    answer = await fleet.filter(4069, "n2", **both)
    assert (answer["Nodes"], answer["NodeNames"]) == (None, ["n2"])


async def test_init_containers_and_sidecars_count(fleet: Endpoint) -> None:
    containers = [container_manifest("a", 4000), container_manifest("b", 4000)]
    for init, passed in ((8138, ["n2"]), (8139, [])):
        pod = pod_manifest(containers=containers, initContainers=[container_manifest("i", init)])
        reply = await fleet.post(FILTER, {"Pod": pod, "NodeNames": ["n2"]})
        assert reply.json["NodeNames"] == passed


async def test_a_pod_whose_memory_does_not_divide_among_its_cards_gets_advice(fleet: Endpoint) -> None:
    pod = pod_manifest(gpu_mem=3, metadata={"labels": {GPU_COUNT: "2"}})
    reply = await fleet.post(FILTER, {"Pod": pod, "NodeNames": ["n2"]})
    (why,) = reply.json["FailedNodes"].values()
    assert "ask for 2 or 4 units" in why
