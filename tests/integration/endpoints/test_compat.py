"""gpushare's endpoint with and without each compat word: only what the word names changes."""

from typing import Any

import pytest

from aliquot.compat import OURS, Compat
from aliquot.dialects.gpushare import IDX
from aliquot.endpoints.gpushare import GpuShareEndpoint
from tests.factories import GPU_MEM, T4, make_cards, make_pod, pod_manifest
from tests.integration.endpoints.endpoint import BIND, FILTER, bind_args
from tests.integration.endpoints.wire import names_call, opened
from tests.integration.room import Room

NODES = ["n1", "small", "full", "sick", "nocount", "cpu", "ghost"]
NO_ROOM = "Insufficient GPU Memory in one device"
NEVER = f"{NO_ROOM}: request exceeds the node's GPUs even when empty"
CONSTANT = {
    "small": NEVER,
    "full": NO_ROOM,
    "sick": f"{NO_ROOM}: every GPU that matches is unhealthy or cordoned",
    "nocount": NEVER,
    "cpu": "The node is not for GPU share, need skip",
    "ghost": "node not found",
}
NAMED = {
    **dict.fromkeys(["small", "full", "sick", "nocount"], NO_ROOM),
    "cpu": "The node cpu is not for GPU share, need skip",
    "ghost": 'node "ghost" not found',
}


async def answers(room: Room, compat: Compat) -> tuple[Any, int]:
    """The answer of a filter, and the status code of a failed bind."""
    await room.add_node(make_cards("n1"))
    await room.add_node(make_cards("small", mib=(1024,)))
    await room.add_node(make_cards("full", mib=(T4,)))
    await room.add_pod("held", 15, metadata={"annotations": {IDX: "0"}}, node="full")
    await room.add_node(make_cards("sick", mib=(T4,), unhealthy=[0]))
    await room.add_plain_node("nocount", {GPU_MEM: "30"})
    await room.add_plain_node("cpu", {})
    async with opened(room, GpuShareEndpoint(room.plane, None, compat).routes()) as endpoint:
        filtered = await endpoint.post(FILTER, names_call(pod_manifest(gpu_mem=3), NODES))
        bound = await endpoint.post(BIND, bind_args(make_pod("ghost")))
    assert filtered.status == 200
    assert filtered.json["NodeNames"] == ["n1"]
    assert bound.json == {"Error": 'pods "ghost" not found'}
    return filtered.json, bound.status


@pytest.mark.parametrize(
    ("compat", "failed", "unresolvable", "code"),
    [
        pytest.param(OURS, CONSTANT, CONSTANT, 200, id="ours"),
        pytest.param(Compat(maps=True), CONSTANT, None, 200, id="maps"),
        pytest.param(Compat(bind_faults=True), CONSTANT, CONSTANT, 500, id="bind-faults"),
        pytest.param(Compat(reasons=True), NAMED, NAMED, 200, id="reasons"),
        pytest.param(Compat(True, True, True, True), NAMED, None, 500, id="all"),
    ],
)
async def test_each_compat_word_changes_only_what_it_names(
    room: Room, compat: Compat, failed: dict[str, str], unresolvable: dict[str, str] | None, code: int
) -> None:
    filtered, status = await answers(room, compat)
    assert filtered["FailedNodes"] == failed
    assert filtered["FailedAndUnresolvableNodes"] == unresolvable
    assert status == code
