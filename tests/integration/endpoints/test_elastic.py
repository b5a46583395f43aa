"""elastic-gpu-scheduler's routes, as kube-scheduler calls them."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

import aliquot
from aliquot.compat import Compat
from aliquot.endpoints.elastic import ElasticEndpoint
from tests.factories import make_cards, make_pod
from tests.integration.endpoints.endpoint import Endpoint, bind_args
from tests.integration.endpoints.wire import CASES, names_call, odd_node, opened, pod_asking, whole_call, written
from tests.integration.room import Room

FILTER, PRIORITIES, BIND, STATUS = (f"/scheduler/{verb}" for verb in ("filter", "priorities", "bind", "status"))
PERCENT = "elastic-gpu/gpu-percent"
CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"
HALF = {PERCENT: "50"}
NO_ROOM = "no enough resource to allocate"
NO_NODE = "elastic gpu scheduler get node failed"


@pytest.fixture
async def elastic(room: Room) -> AsyncIterator[Endpoint]:
    """n1 has two cards, half of the first in use; n2 has one card of half the size."""
    await fill(room)
    async with opened(room, ElasticEndpoint(room.plane).routes()) as endpoint:
        yield endpoint


async def fill(room: Room) -> None:
    await room.add_node(make_cards("n1", mib=(16000, 16000)))
    await room.add_node(make_cards("n2", mib=(8000,)))
    await room.add_plain_node("cpu", {})
    marks = {"elastic-gpu/assume": "true", "elastic-gpu/container-main": "0"}
    await room.add_pod("held", containers=containers(HALF), node="n1", metadata={"annotations": marks})


def containers(limits: dict[str, str]) -> list[Any]:
    found: list[Any] = pod_asking(limits)["spec"]["containers"]
    return found


EXACT: list[Any] = [
    pytest.param(
        msgspec.json.encode(names_call(pod_asking(HALF), ["n2", "cpu", "n1"])),
        b'{"Nodes":null,"NodeNames":["n2","n1"],"FailedNodes":{"cpu":"no gpu available on node"},'
        b'"FailedAndUnresolvableNodes":{"cpu":"no gpu available on node"},"Error":""}',
        id="names, in the order of the call",
    ),
    pytest.param(
        msgspec.json.encode(names_call(pod_asking(HALF), ["ghost"])),
        b'{"Nodes":null,"NodeNames":[],"FailedNodes":{"ghost":"elastic gpu scheduler get node failed"},'
        b'"FailedAndUnresolvableNodes":{"ghost":"elastic gpu scheduler get node failed"},"Error":""}',
        id="an unknown name",
    ),
    pytest.param(
        msgspec.json.encode(names_call(pod_asking({PERCENT: "200"}), ["n1"])),
        b'{"Nodes":null,"NodeNames":[],"FailedNodes":{"n1":"no enough resource to allocate"},'
        b'"FailedAndUnresolvableNodes":{"n1":"no enough resource to allocate"},"Error":""}',
        id="no room",
    ),
    pytest.param(
        msgspec.json.encode(names_call(pod_asking({CORE: "10", MEMORY: "12000"}), ["n1"])),
        b'{"Nodes":null,"NodeNames":["n1"],"FailedNodes":{},"Error":""}',
        id="cores and memory",
    ),
    pytest.param(
        whole_call(pod_asking(HALF), [odd_node("n1"), odd_node("cpu")]),
        b'{"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null,"FailedNodes":{"cpu":"no gpu available on node"},'
        b'"FailedAndUnresolvableNodes":{"cpu":"no gpu available on node"},"Error":""}' % odd_node("n1"),
        id="whole nodes, which the original does not accept",
    ),
    pytest.param(
        msgspec.json.encode(names_call(pod_asking({}), ["cpu", "n1"])),
        b'{"Nodes":null,"NodeNames":["cpu","n1"],"FailedNodes":{},"Error":""}',
        id="no GPU, which is an error in the original",
    ),
    pytest.param(
        b"",
        b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,"Error":"EOF"}',
        id="no body",
    ),
]


@pytest.mark.parametrize(("body", "answer"), EXACT)
async def test_filter_answers_byte_for_byte(elastic: Endpoint, body: bytes, answer: bytes) -> None:
    reply = await elastic.send("POST", FILTER, body)
    assert (reply.status, reply.content_type, reply.body) == (200, "application/json", answer)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("path", [FILTER, PRIORITIES])
async def test_keys_are_read_in_any_case(elastic: Endpoint, path: str, case: Callable[[str], str]) -> None:
    call = names_call(pod_asking(HALF), ["n1", "n2"])
    reply = await elastic.post(path, written(call, case))
    assert reply.body == (await elastic.post(path, call)).body


async def test_priorities_name_every_node_in_order_from_0_to_10(elastic: Endpoint) -> None:
    reply = await elastic.post(PRIORITIES, names_call(pod_asking({PERCENT: "25"}), ["n2", "cpu", "n1"]))
    assert reply.status == 200
    assert [list(entry) for entry in reply.json] == [["Host", "Score"]] * 3
    assert [entry["Host"] for entry in reply.json] == ["n2", "cpu", "n1"]
    scores = {entry["Host"]: entry["Score"] for entry in reply.json}
    assert (scores["n1"], scores["n2"], scores["cpu"]) == (10, 0, 0), "binpack: the fuller node first"


async def test_priorities_of_whole_nodes_are_the_same(elastic: Endpoint) -> None:
    names = await elastic.post(PRIORITIES, names_call(pod_asking(HALF), ["n1", "n2"]))
    nodes = await elastic.send("POST", PRIORITIES, whole_call(pod_asking(HALF), [odd_node("n1"), odd_node("n2")]))
    assert names.body == nodes.body


@pytest.mark.parametrize("body", [b"", b"{", b'{"Pod":null}', b"[]"])
async def test_bad_priorities_get_a_400_with_the_reason_not_a_dropped_connection(
    elastic: Endpoint, body: bytes
) -> None:
    reply = await elastic.send("POST", PRIORITIES, body)
    assert reply.status == 400
    assert reply.text


async def test_bind_writes_the_original_s_annotations(elastic: Endpoint) -> None:
    pod = await elastic.room.add_pod("mine", containers=containers(HALF))
    await elastic.pass_filter(pod, path=FILTER)
    reply = await elastic.post(BIND, bind_args(pod, "n1"))
    assert (reply.status, reply.body) == (200, b'{"Error":""}')
    bound = elastic.room.api_pod(pod)
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"]["elastic-gpu/container-main"] == "0"


@pytest.mark.parametrize(
    ("compat", "status"),
    [
        pytest.param(Compat(), 200, id="a 200, so that the text arrives"),
        pytest.param(Compat(bind_faults=True), 500, id="a 500, as in the original"),
    ],
)
async def test_a_failed_bind_says_why(room: Room, compat: Compat, status: int) -> None:
    await fill(room)
    pod = make_pod("ghost", containers=containers(HALF))
    async with opened(room, ElasticEndpoint(room.plane, None, compat).routes()) as endpoint:
        reply = await endpoint.post(BIND, bind_args(pod, "n1"))
        empty = await endpoint.send("POST", BIND, b"")
    assert (reply.status, reply.json) == (status, {"Error": 'pods "ghost" not found'})
    assert (empty.status, empty.json) == (status, {"Error": "EOF"})


async def test_status_is_json_in_strings(elastic: Endpoint) -> None:
    reply = await elastic.send("GET", STATUS)
    assert (reply.status, list(reply.json)) == (200, [CORE, MEMORY])
    assert reply.json[CORE] == reply.json[MEMORY]
    assert reply.json[CORE] == (
        '{"n1":[{"CoreAvailable":50,"MemoryAvailable":8000,"CoreTotal":100,"MemoryTotal":16000},'
        '{"CoreAvailable":100,"MemoryAvailable":16000,"CoreTotal":100,"MemoryTotal":16000}],'
        '"n2":[{"CoreAvailable":100,"MemoryAvailable":8000,"CoreTotal":100,"MemoryTotal":8000}]}'
    )


@pytest.mark.parametrize(
    ("allocatable", "limits", "passes"),
    [
        pytest.param({CORE: "300"}, {CORE: "400"}, False, id="more than is allocatable"),
        pytest.param({CORE: "300"}, {CORE: "300"}, True, id="all that is allocatable"),
        pytest.param({CORE: "0"}, {CORE: "100"}, False, id="none is allocatable"),
        pytest.param({MEMORY: "0"}, {CORE: "30", MEMORY: "50"}, False, id="memory of a node that offers none"),
        pytest.param({MEMORY: "0"}, {CORE: "30"}, True, id="cores of a node that offers no memory"),
        pytest.param({MEMORY: "0"}, {CORE: "200"}, True, id="whole cards of a node that offers no memory"),
    ],
)
async def test_a_node_without_our_agent_offers_what_is_allocatable(
    room: Room, allocatable: dict[str, str], limits: dict[str, str], passes: bool
) -> None:
    await room.add_plain_node("old", {CORE: "400", MEMORY: "64000"}, allocatable=allocatable)
    compat = Compat(maps=True, reasons=True)
    async with opened(room, ElasticEndpoint(room.plane, None, compat).routes()) as endpoint:
        answer = (await endpoint.post(FILTER, names_call(pod_asking(limits), ["old"]))).json
    why = f"{NO_NODE}: no gpu available on node old" if allocatable == {CORE: "0"} else NO_ROOM
    assert (answer["NodeNames"], answer["FailedNodes"]) == ((["old"], {}) if passes else ([], {"old": why}))


async def test_a_pod_keeps_its_card_when_fewer_cards_are_allocatable(room: Room) -> None:
    marks = {"elasticgpu.io/assumed": "true", "elasticgpu.io/container-main": "1"}
    await room.add_plain_node("old", {CORE: "200", MEMORY: "32000"}, allocatable={CORE: "100", MEMORY: "16000"})
    pod = await room.add_pod("held", containers=containers({CORE: "100"}), node="old", metadata={"annotations": marks})
    entry = room.plane.cluster.ledger.entry(pod.metadata.uid, "old")
    assert entry is not None
    assert list(entry.charges) == ["old/1"]


async def test_status_shows_what_is_allocatable(room: Room) -> None:
    await room.add_plain_node("four", {CORE: "400", MEMORY: "64000"}, allocatable={CORE: "100", MEMORY: "16000"})
    await room.add_plain_node("gone", {CORE: "100", MEMORY: "16000"}, allocatable={CORE: "0", MEMORY: "0"})
    await room.add_plain_node("without", {CORE: "100"})
    async with opened(room, ElasticEndpoint(room.plane).routes()) as endpoint:
        shown = msgspec.json.decode((await endpoint.send("GET", STATUS)).json[CORE])
        first = (await endpoint.send("POST", "/status")).json
    whole = {"CoreAvailable": 100, "MemoryAvailable": 16000, "CoreTotal": 100, "MemoryTotal": 16000}
    assert shown == {"four": [whole], "without": [whole | {"MemoryAvailable": 0, "MemoryTotal": 0}]}
    assert {node: [gpu["Percent"] for gpu in status["GPUs"]] for node, status in first.items()} == {
        "four": [100],
        "without": [100],
    }


@pytest.mark.parametrize("prefix", ["elasticgpu.io", "elasticgpu.com"])
async def test_status_uses_the_resource_names_of_the_nodes(room: Room, prefix: str) -> None:
    await room.add_plain_node("old", {f"{prefix}/gpu-core": "100", f"{prefix}/gpu-memory": "16000"})
    async with opened(room, ElasticEndpoint(room.plane).routes()) as endpoint:
        reply = await endpoint.send("GET", STATUS)
    assert list(reply.json) == [f"{prefix}/gpu-core", f"{prefix}/gpu-memory"]


async def test_status_of_the_first_versions_is_in_percent(elastic: Endpoint) -> None:
    reply = await elastic.send("POST", "/status")
    assert reply.status == 200
    assert list(reply.json) == ["n1", "n2"]
    assert reply.json["n1"] == {
        "Rater": {},
        "Name": "n1",
        "GPUs": [
            {"Percent": 50, "PercentTotal": 100, "RemainLoad": 0},
            {"Percent": 100, "PercentTotal": 100, "RemainLoad": 0},
        ],
        "PlanCache": {},
    }


async def test_the_version_is_plain_text(elastic: Endpoint) -> None:
    assert (await elastic.send("GET", "/version")).text == aliquot.__version__


async def test_compat_restores_the_original_s_map_and_reasons(room: Room) -> None:
    await fill(room)
    async with opened(room, ElasticEndpoint(room.plane, None, Compat(maps=True, reasons=True)).routes()) as endpoint:
        reply = await endpoint.post(FILTER, names_call(pod_asking({PERCENT: "200"}), ["n1", "n2", "cpu", "ghost"]))
    assert list(reply.json) == ["Nodes", "NodeNames", "FailedNodes", "Error"]
    assert reply.json["FailedNodes"] == {
        "n1": NO_ROOM,
        "n2": NO_ROOM,
        "cpu": "elastic gpu scheduler get node failed: no gpu available on node cpu",
        "ghost": 'elastic gpu scheduler get node failed: nodes "ghost" not found',
    }
