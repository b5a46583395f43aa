"""gpu-admission's routes, as kube-scheduler calls them: a GPU pod gets one node, with a reservation."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

import aliquot
from aliquot.compat import Compat
from aliquot.control.placing.late import LatePlacer
from aliquot.control.placing.reservations import Reservations
from aliquot.control.placing.transaction import PlacementTransactions
from aliquot.control.state.events import Expired
from aliquot.endpoints.admission import AdmissionEndpoint
from aliquot.endpoints.verbs import NOT_CHOSEN
from aliquot.ledger import State
from aliquot.model import Pod
from aliquot.model.records import PLACEMENT
from tests.factories import container_manifest, make_cards, minor_of, pod_manifest
from tests.fakes import FakeClock
from tests.integration.control.test_audit import audit_of
from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.endpoints.wire import CASES, KEYS, names_call, odd_node, opened, pod_asking, whole_call, written
from tests.integration.room import Room

PREDICATES = "/scheduler/predicates"
CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
HALF = {CORE: "50", MEMORY: "8"}
NO_GPU = "no GPU device"
NO_ROOM = "pod does not match with this node: not enough room on the node's GPUs now"
TOO_LARGE = "pod does not match with this node: request exceeds the node's GPUs even when empty"


@pytest.fixture
async def admission(room: Room) -> AsyncIterator[Endpoint]:
    """n1 is the tightest: half of a card is in use there."""
    await fill(room)
    async with opened(room, AdmissionEndpoint(room.plane).routes()) as endpoint:
        yield endpoint


async def fill(room: Room) -> None:
    for name in ("n1", "n2"):
        await room.add_node(make_cards(name))
    await room.add_plain_node("cpu", {})
    marks = {"annotations": {"tencent.com/predicate-gpu-idx-0": str(minor_of(0))}}
    await room.add_pod("held", containers=[asking("main", 50, 8)], node="n1", metadata=marks)


def asking(name: str, cores: int, blocks: int) -> dict[str, Any]:
    limits = {CORE: str(cores), MEMORY: str(blocks)} if cores else {}
    return container_manifest(name, gpu_mem=None) | {"resources": {"limits": limits}}


async def ask(endpoint: Endpoint, pod: Any, *names: str) -> Any:
    reply = await endpoint.post(PREDICATES, names_call(pod, names))
    assert reply.status == 200
    return reply.json


def claims(room: Room, uid: str) -> dict[str, State]:
    ledger = room.plane.cluster.ledger
    entries = {node: ledger.entry(uid, node) for node in ledger.nodes_of(uid)}
    return {node: entry.state for node, entry in entries.items() if entry is not None}


# -- the wire


async def test_a_gpu_pod_gets_one_node_and_every_other_node_a_reason(admission: Endpoint) -> None:
    answer = await ask(admission, pod_asking(HALF), "n2", "cpu", "n1")
    refused = {"cpu": NO_GPU, "n2": NOT_CHOSEN}
    assert list(answer) == KEYS
    assert answer == {
        "Nodes": None,
        "NodeNames": ["n1"],
        "FailedNodes": refused,
        "FailedAndUnresolvableNodes": refused,
        "Error": "",
    }


EXACT: list[Any] = [
    pytest.param(
        msgspec.json.encode(names_call(pod_asking(HALF), ["n1"])),
        b'{"Nodes":null,"NodeNames":["n1"],"FailedNodes":{},"Error":""}',
        id="one name that fits",
    ),
    pytest.param(
        msgspec.json.encode(names_call(pod_asking(HALF), ["cpu"])),
        b'{"Nodes":null,"NodeNames":[],"FailedNodes":{"cpu":"no GPU device"},'
        b'"FailedAndUnresolvableNodes":{"cpu":"no GPU device"},"Error":""}',
        id="one name that does not",
    ),
    pytest.param(
        whole_call(pod_asking(HALF), [odd_node("n1"), odd_node("cpu")]),
        b'{"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null,"FailedNodes":{"cpu":"no GPU device"},'
        b'"FailedAndUnresolvableNodes":{"cpu":"no GPU device"},"Error":""}' % odd_node("n1"),
        id="whole nodes",
    ),
    pytest.param(
        whole_call(pod_asking(HALF), [odd_node("cpu")]),
        b'{"Nodes":{"metadata":{},"items":[]},"NodeNames":null,"FailedNodes":{"cpu":"no GPU device"},'
        b'"FailedAndUnresolvableNodes":{"cpu":"no GPU device"},"Error":""}',
        id="whole nodes, none fits",
    ),
    pytest.param(
        msgspec.json.encode(names_call(pod_asking({}), ["cpu", "n1", "ghost"])),
        b'{"Nodes":null,"NodeNames":["cpu","n1","ghost"],"FailedNodes":null,"Error":""}',
        id="no GPU, names",
    ),
    pytest.param(
        whole_call(pod_asking({}), [odd_node("cpu"), odd_node("n1")], metadata=b'{"resourceVersion" : "7"}'),
        b'{"Nodes":{"metadata":{"resourceVersion" : "7"} , "items":[%b, %b]},"NodeNames":null,"FailedNodes":null,'
        b'"Error":""}' % (odd_node("cpu"), odd_node("n1")),
        id="no GPU, whole nodes: the list is returned unchanged",
    ),
    pytest.param(
        b"",
        b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,"Error":"EOF"}',
        id="no body",
    ),
]


@pytest.mark.parametrize(("body", "answer"), EXACT)
async def test_answers_equal_the_original_s_byte_for_byte(admission: Endpoint, body: bytes, answer: bytes) -> None:
    reply = await admission.send("POST", PREDICATES, body)
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert reply.body == answer


@pytest.mark.parametrize("case", CASES)
async def test_keys_are_read_in_any_case(admission: Endpoint, case: Callable[[str], str]) -> None:
    call = written(names_call(pod_asking(HALF), ["n1", "n2"]), case)
    assert (await admission.post(PREDICATES, call)).json["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        pytest.param("GET", "/version", 200, f"aliquot-{aliquot.__version__}", id="version"),
        pytest.param("GET", "/hello", 200, "Hello, World!", id="hello"),
        pytest.param("GET", PREDICATES, 405, "Method Not Allowed\n", id="predicates by GET"),
        pytest.param("POST", "/scheduler/filter", 404, "404 page not found\n", id="an unknown verb"),
    ],
)
async def test_other_routes_answer_as_the_original(
    admission: Endpoint, method: str, path: str, status: int, text: str
) -> None:
    reply = await admission.send(method, path)
    assert (reply.status, reply.text) == (status, text)


@pytest.mark.parametrize(
    "call",
    [names_call(pod_asking({}), []), {"Pod": pod_asking({}), "Nodes": {"metadata": {}, "items": []}}],
    ids=["names", "whole nodes"],
)
async def test_priorities_of_no_node_are_null_as_in_the_original(admission: Endpoint, call: Any) -> None:
    reply = await admission.post("/scheduler/priorities", call)
    assert (reply.status, reply.body) == (200, b"null")


async def test_a_pod_that_asks_for_no_cores_passes_as_one_without_gpu(admission: Endpoint) -> None:
    answer = await ask(admission, pod_asking({CORE: "0"}), "n1", "cpu")
    assert (answer["NodeNames"], answer["FailedNodes"]) == (["n1", "cpu"], None)


async def test_among_nodes_with_equal_free_cores_the_one_with_less_memory_in_its_status_wins(room: Room) -> None:
    """Two cards of 4 blocks on both; a ninth block belongs to no card."""
    await room.add_plain_node("a", {CORE: "200", MEMORY: "9"})
    await room.add_plain_node("b", {CORE: "200", MEMORY: "8"})
    async with opened(room, AdmissionEndpoint(room.plane).routes()) as endpoint:
        assert (await ask(endpoint, pod_asking({CORE: "10", MEMORY: "1"}), "a", "b"))["NodeNames"] == ["b"]


async def test_priorities_of_the_first_version_prefer_nodes_without_gpu(admission: Endpoint) -> None:
    reply = await admission.post("/scheduler/priorities", names_call(pod_asking({}), ["n1", "cpu", "n2"]))
    assert reply.body == b'[{"Host":"n1","Score":0},{"Host":"cpu","Score":1},{"Host":"n2","Score":0}]'
    assert (await admission.send("POST", "/scheduler/priorities", b"{")).status == 400


# -- one node, with a reservation


async def test_the_filter_reserves_the_node_for_a_while(admission: Endpoint) -> None:
    room = admission.room
    pod = await room.add_pod("waits", containers=pod_asking(HALF)["spec"]["containers"])
    uid, before = pod.metadata.uid, len(room.api.writes())
    await ask(admission, msgspec.to_builtins(pod), "n1", "n2")
    assert claims(room, uid) == {"n1": State.RESERVED}
    assert len(room.api.writes()) == before, "a filter writes nothing"
    room.plane.cluster.apply(Expired(room.clock.monotonic() + room.plane.settings.late.hold - 1))
    assert claims(room, uid) == {"n1": State.RESERVED}
    room.plane.cluster.apply(Expired(room.clock.monotonic() + room.plane.settings.late.hold))
    assert claims(room, uid) == {}


async def test_two_pods_never_get_the_same_part(admission: Endpoint) -> None:
    """Four whole cards; half of one is in use."""
    whole = {CORE: "100", MEMORY: "8"}
    pods = [await admission.room.put_pod(pod_asking(whole, name=f"p{number}")) for number in range(4)]
    nodes = [(await ask(admission, pod, "n1", "n2"))["NodeNames"] for pod in pods]
    assert nodes == [["n1"], ["n2"], ["n2"], []]


async def test_filtering_again_moves_the_reservation(admission: Endpoint) -> None:
    pod = await admission.room.put_pod(pod_asking(HALF))
    for names in (["n1"], ["n2"], ["n1", "n2"]):
        (node,) = (await ask(admission, pod, *names))["NodeNames"]
        assert claims(admission.room, pod["metadata"]["uid"]) == {node: State.RESERVED}


async def test_a_pod_that_no_longer_fits_loses_its_reservation(admission: Endpoint) -> None:
    pod = await admission.room.put_pod(pod_asking(HALF))
    await ask(admission, pod, "n1")
    await ask(admission, pod, "cpu")
    assert claims(admission.room, pod["metadata"]["uid"]) == {}


@pytest.mark.parametrize(
    "earlier",
    [
        {"tencent.com/predicate-time": "1700000000000000000"},
        {"tencent.com/gpu-assigned": "false"},
        {"tencent.com/predicate-gpu-idx-0": "0", "tencent.com/predicate-node": "n2"},
    ],
    ids=lambda keys: next(iter(keys)),
)
async def test_a_pod_with_annotations_of_an_earlier_attempt_is_served_again(
    admission: Endpoint, earlier: dict[str, str]
) -> None:
    answer = await ask(admission, pod_asking(HALF, annotations=earlier), "n1", "n2")
    assert (answer["NodeNames"], answer["Error"]) == (["n1"], "")


# -- what fits where


PODS: list[tuple[tuple[tuple[int, int], ...], str]] = [
    (((10, 1), (10, 1)), "testnode0"),
    (((100, 3), (80, 3)), "testnode1"),
    (((200, 10), (0, 0)), "testnode2"),
    (((10, 2), (0, 0)), "testnode0"),
]
"""Cores and blocks of every container, and the node that the original's own test expects."""


async def test_the_original_s_pods_get_the_original_s_nodes(room: Room) -> None:
    for number in range(3):
        await room.add_node(make_cards(f"testnode{number}", mib=(1024, 1024)))
    async with opened(room, AdmissionEndpoint(room.plane).routes()) as endpoint:
        for number, (containers, node) in enumerate(PODS):
            asked = [asking(f"c{place}", *amounts) for place, amounts in enumerate(containers)]
            pod = await room.put_pod(pod_manifest(f"pod-{number}", containers=asked))
            assert (await ask(endpoint, pod, "testnode2", "testnode1", "testnode0"))["NodeNames"] == [node]


BAD: list[Any] = [
    pytest.param({CORE: "50"}, "tencent.com/vcuda-memory", id="cores of a card without memory"),
    pytest.param({CORE: "150", MEMORY: "8"}, "tencent.com/vcuda-core", id="one card and a half"),
    pytest.param({MEMORY: "8"}, "tencent.com/vcuda-core", id="only memory"),
    pytest.param({CORE: "50", MEMORY: "8Gi"}, "write 32, not 8Gi", id="bytes instead of blocks"),
]


@pytest.mark.parametrize(("limits", "text"), BAD)
async def test_an_impossible_demand_is_refused_everywhere_with_advice(
    admission: Endpoint, limits: dict[str, str], text: str
) -> None:
    answer = await ask(admission, pod_asking(limits), "n1", "cpu")
    assert (answer["NodeNames"], answer["Error"]) == ([], "")
    assert list(answer["FailedNodes"]) == ["n1", "cpu"]
    for why in answer["FailedNodes"].values():
        assert text in why
    assert claims(admission.room, "u-1") == {}


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        pytest.param({CORE: "200", MEMORY: "8"}, NO_ROOM, id="no room now"),
        pytest.param({CORE: "300", MEMORY: "8"}, TOO_LARGE, id="never room"),
    ],
)
async def test_refusals_use_the_original_s_words(admission: Endpoint, limits: dict[str, str], why: str) -> None:
    assert (await ask(admission, pod_asking(limits), "n1"))["FailedNodes"] == {"n1": why}


# -- exactly as the original


async def test_compat_restores_the_original_s_map_and_reasons(room: Room) -> None:
    await fill(room)
    async with opened(room, AdmissionEndpoint(room.plane, None, Compat(maps=True, reasons=True)).routes()) as endpoint:
        chosen = await ask(endpoint, pod_asking(HALF), "n1", "n2", "cpu")
        full = await ask(endpoint, pod_asking({CORE: "200", MEMORY: "8"}, metadata={"uid": "u-2"}), "n1")
    assert chosen["FailedNodes"] == {"n2": "pod u-1 has already been matched to another node", "cpu": NO_GPU}
    assert list(chosen) == list(full) == ["Nodes", "NodeNames", "FailedNodes", "Error"]
    assert full["FailedNodes"] == {"n1": "pod u-2 does not match with this node"}


# -- after the filter


async def bind_as_scheduler(room: Room, pod: Pod, node: str) -> None:
    """kube-scheduler's own Binding, which says nothing about cards."""
    name, namespace = pod.metadata.name, pod.metadata.namespace
    binding = {"metadata": {"name": name, "namespace": namespace}, "target": {"kind": "Node", "name": node}}
    await room.client.bind(binding, timeout=20)
    await room.in_sync()


async def place_late(room: Room, *, seconds_later: float = 0.0) -> None:
    plane, clock = room.plane, FakeClock()
    await clock.move(room.clock.monotonic() - clock.monotonic() + seconds_later)
    client, cluster, leadership = plane.client, plane.cluster, plane.leadership
    transactions = PlacementTransactions(client, cluster, leadership, clock, plane.settings.commit)
    Reservations(cluster, leadership, clock, plane.settings.commit).expire()
    await LatePlacer(
        client, cluster, transactions, plane.nodes.get, leadership, plane.pod_events, clock, plane.settings.late
    ).look()
    await room.in_sync()


STALE = {
    "tencent.com/predicate-gpu-idx-0": str(minor_of(1)),
    "tencent.com/predicate-node": "n1",
    "tencent.com/predicate-time": "1700000000000000000",
    "tencent.com/gpu-assigned": "false",
}


@pytest.mark.parametrize("marks", [{}, STALE], ids=["no annotations", "annotations of an earlier attempt"])
async def test_a_bound_pod_gets_its_reserved_card(admission: Endpoint, marks: dict[str, str]) -> None:
    room = admission.room
    pod = await room.add_pod("again", containers=[asking("main", 50, 8)], metadata={"annotations": marks})
    assert (await ask(admission, room.api_pod(pod), "n1", "n2"))["NodeNames"] == ["n1"]
    await bind_as_scheduler(room, pod, "n1")
    assert await audit_of(room).look() == []
    await place_late(room)
    assert await audit_of(room).look() == []
    written = room.api_pod(pod)["metadata"]["annotations"]
    assert written["tencent.com/predicate-gpu-idx-0"] == str(minor_of(0))
    assert PLACEMENT in written
    assert claims(room, pod.metadata.uid) == {"n1": State.BOUND}


async def test_without_a_reservation_the_annotations_of_a_bound_pod_count(admission: Endpoint) -> None:
    room = admission.room
    pod = await room.add_pod("again", containers=[asking("main", 50, 8)], metadata={"annotations": STALE})
    await ask(admission, room.api_pod(pod), "n1", "n2")
    await bind_as_scheduler(room, pod, "n1")
    assert claims(room, pod.metadata.uid) == {"n1": State.RESERVED}
    await place_late(room, seconds_later=room.plane.settings.late.hold)
    assert PLACEMENT not in room.api_pod(pod)["metadata"]["annotations"]
    assert list(room.entries()[pod.metadata.uid].charges) == ["GPU-n1-1"]
