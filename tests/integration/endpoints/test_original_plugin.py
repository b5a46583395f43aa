"""gpushare's pods on nodes with its own device plugin, which knows only one card per pod."""

from typing import Any

import pytest

from aliquot.control import ClusterState
from aliquot.control.state.events import NodeSeen, PodSeen
from aliquot.dialects.gpushare import DEV, IDX, POD
from aliquot.dialects.gpushare_records import ALLOCATION
from aliquot.model import Pod
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest, make_cards
from tests.fakes import Fault, cut_before
from tests.integration.control.test_audit import audit_of
from tests.integration.endpoints.endpoint import FILTER, Endpoint
from tests.integration.endpoints.wire import names_call

OLD, NEW = "old", "new"


def asking(mem: int, count: int, *, by_label: bool = False) -> dict[str, Any]:
    limits = {GPU_MEM: str(mem)} if by_label else {GPU_MEM: str(mem), GPU_COUNT: str(count)}
    labels = {GPU_COUNT: str(count)} if by_label else {}
    return {
        "containers": [container_manifest("main", None, resources={"limits": limits})],
        "metadata": {"labels": labels},
    }


@pytest.fixture
async def both(endpoint: Endpoint) -> Endpoint:
    """Two cards of 15 units on each of two nodes, one with the original's plugin, one with our agent."""
    await endpoint.room.add_plain_node(OLD, {GPU_MEM: "30", GPU_COUNT: "2"})
    await endpoint.room.add_node(make_cards(NEW))
    return endpoint


async def passed(endpoint: Endpoint, pod: Pod) -> list[str]:
    reply = await endpoint.post(FILTER, names_call(endpoint.room.api_pod(pod), [OLD, NEW]))
    assert reply.json["Error"] == ""
    return list(reply.json["NodeNames"])


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        pytest.param(asking(8, 2), [OLD, NEW], id="parts of one card, or of two"),
        pytest.param(asking(7, 2), [OLD, NEW], id="an amount that does not divide"),
        pytest.param(asking(15, 2), [OLD, NEW], id="all of a card"),
        pytest.param(asking(16, 2), [NEW], id="more than one card has"),
        pytest.param(asking(6, 3), [OLD], id="more cards than there are"),
        pytest.param(asking(8, 2, by_label=True), [OLD, NEW], id="the label, which the original does not know"),
    ],
)
async def test_a_pod_passes_where_the_node_s_agent_can_serve_it(
    both: Endpoint, asked: dict[str, Any], nodes: list[str]
) -> None:
    pod = await both.room.add_pod(**asked)
    assert await passed(both, pod) == nodes
    cluster = both.room.plane.cluster
    demand = cluster.demand_of(pod)
    assert demand is not None
    assert [node for node in (OLD, NEW) if cluster.explain_node(demand, node).fits] == nodes, (
        "explained in the same way"
    )


@pytest.mark.parametrize("by_label", [False, True], ids=["resource", "label"])
@pytest.mark.parametrize(
    ("mem", "node", "written", "used"),
    [
        pytest.param(8, OLD, {IDX: "0", POD: "8", DEV: "15"}, {0: 8}, id="one card for the original's plugin"),
        pytest.param(8, NEW, {IDX: "0,1", POD: "8", DEV: "15"}, {0: 4, 1: 4}, id="two for our agent"),
    ],
)
async def test_bind_writes_the_keys_that_the_node_s_agent_reads(
    both: Endpoint, mem: int, node: str, written: dict[str, str], used: dict[int, int], by_label: bool
) -> None:
    room = both.room
    pod = await room.add_pod(**asking(mem, 2, by_label=by_label))
    assert await both.bind(pod, node) == ""
    await room.in_sync()
    annotations = room.api_pod(pod)["metadata"]["annotations"]
    assert {key: annotations[key] for key in written} == written
    assert (ALLOCATION in annotations) is (node == NEW)
    assert room.used(node) == used
    assert await audit_of(room).look() == []


@pytest.mark.parametrize("fault", [None, cut_before], ids=["bound", "the Binding has no answer yet"])
async def test_a_pod_keeps_its_one_card_when_our_agent_takes_the_node_over(both: Endpoint, fault: Fault | None) -> None:
    room = both.room
    pod = await room.add_pod(**asking(7, 2))
    if fault is not None:
        room.api.script("POST", "/binding$", fault)
    await both.bind(pod, OLD)
    await room.in_sync()
    await room.change_node(make_cards(OLD))
    assert room.used(OLD) == {0: 7}


async def test_a_pod_on_one_card_of_the_original_is_read_back_as_such(both: Endpoint) -> None:
    room = both.room
    pod = await room.add_pod(**asking(7, 2))
    assert await both.bind(pod, OLD) == ""
    await room.report(pod, phase="Running", containerStatuses=[{"name": "main", "state": {"running": {}}}])
    cluster = ClusterState()
    for node in room.plane.nodes.all():
        cluster.apply(NodeSeen(node))
    for seen in room.plane.pods.all():
        cluster.apply(PodSeen(seen))
    assert {uuid: charge.mib for uuid, charge in cluster.ledger.used(OLD).items()} == {f"{OLD}/0": 7 * 1024}
