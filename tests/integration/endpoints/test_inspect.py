"""gpushare's inspect and version, and the health routes."""

import aiohttp
import pytest

import aliquot
from aliquot.control.leadership.rights import ONLY_ONE
from aliquot.dialects.gpushare import IDX
from tests.factories import GPU_COUNT, GPU_MEM, make_cards
from tests.fakes import cut_before
from tests.integration.endpoints.endpoint import INSPECT, Endpoint


async def test_every_node_with_shared_cards_is_shown_with_its_pods(endpoint: Endpoint) -> None:
    await endpoint.room.add_node(make_cards("n2", mib=(16276, 16276), unit_mib=1))
    await endpoint.room.add_node(make_cards("n1"))
    await endpoint.room.add_plain_node("cpu", {})
    pod = await endpoint.room.add_pod("a", 12207)
    assert await endpoint.bind(pod, "n2") == ""
    await endpoint.room.in_sync()
    reply = await endpoint.send("GET", INSPECT)
    empty = {"totalGPU": 15, "usedGPU": 0, "pods": []}
    assert reply.json == {
        "nodes": [
            {"name": "n1", "totalGPU": 30, "usedGPU": 0, "devs": [{"id": 0, **empty}, {"id": 1, **empty}]},
            {
                "name": "n2",
                "totalGPU": 32552,
                "usedGPU": 12207,
                "devs": [
                    {
                        "id": 0,
                        "totalGPU": 16276,
                        "usedGPU": 12207,
                        "pods": [{"name": "a", "namespace": "default", "usedGPU": 12207}],
                    },
                    {"id": 1, "totalGPU": 16276, "usedGPU": 0, "pods": []},
                ],
            },
        ]
    }


async def test_a_single_node_is_shown_by_name(endpoint: Endpoint) -> None:
    await endpoint.room.add_node(make_cards("n1", mib=(15360,)))
    await endpoint.room.add_node(make_cards("n2"))
    reply = await endpoint.send("GET", f"{INSPECT}/n1")
    assert [node["name"] for node in reply.json["nodes"]] == ["n1"]


async def test_a_node_without_cards_is_shown_empty(endpoint: Endpoint) -> None:
    await endpoint.room.add_plain_node("cpu", {})
    reply = await endpoint.send("GET", f"{INSPECT}/cpu")
    assert reply.json == {"nodes": [{"name": "cpu", "totalGPU": 0, "usedGPU": 0, "devs": []}]}


async def test_an_unknown_node_is_a_404(endpoint: Endpoint) -> None:
    reply = await endpoint.send("GET", f"{INSPECT}/ghost")
    assert (reply.status, reply.json) == (404, {"nodes": [], "error": 'node "ghost" not found'})


async def test_a_node_of_an_original_is_shown_by_its_status(endpoint: Endpoint) -> None:
    await endpoint.room.add_plain_node("old", {GPU_MEM: "30", GPU_COUNT: "2"})
    await endpoint.room.add_pod("p", 4, metadata={"annotations": {IDX: "1"}}, node="old")
    (node,) = (await endpoint.send("GET", f"{INSPECT}/old")).json["nodes"]
    assert [(dev["totalGPU"], dev["usedGPU"]) for dev in node["devs"]] == [(15, 0), (15, 4)]


@pytest.mark.parametrize(
    ("capacity", "total", "cards"),
    [
        pytest.param({GPU_MEM: "31", GPU_COUNT: "2"}, 31, [15, 15], id="a unit that belongs to no card"),
        pytest.param({GPU_MEM: "30"}, 30, [], id="no count"),
    ],
)
async def test_a_node_of_an_original_has_all_the_memory_of_its_status(
    endpoint: Endpoint, capacity: dict[str, str], total: int, cards: list[int]
) -> None:
    await endpoint.room.add_plain_node("old", capacity)
    (node,) = (await endpoint.send("GET", INSPECT)).json["nodes"]
    assert (node["totalGPU"], [dev["totalGPU"] for dev in node["devs"]]) == (total, cards)


async def test_a_claim_counts_before_its_pod_is_bound_and_is_not_listed(endpoint: Endpoint) -> None:
    await endpoint.room.add_node(make_cards(mib=(15360,)))
    pod = await endpoint.room.add_pod()
    endpoint.room.api.script("POST", "/binding$", cut_before)
    assert await endpoint.bind(pod) != ""
    (node,) = (await endpoint.send("GET", INSPECT)).json["nodes"]
    assert (node["usedGPU"], node["devs"][0]["pods"]) == (3, [])


async def test_the_version_is_plain_text(endpoint: Endpoint) -> None:
    reply = await endpoint.send("GET", "/version")
    assert (reply.status, reply.text) == (200, aliquot.__version__)


async def test_healthz_is_ok(endpoint: Endpoint) -> None:
    reply = await endpoint.send("GET", "/healthz")
    assert (reply.status, reply.text) == (200, "ok")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_load_balancers_may_use_head(endpoint: Endpoint, path: str) -> None:
    async with aiohttp.ClientSession() as session, session.head(endpoint.url + path) as response:
        whole = await endpoint.send("GET", path)
        assert (response.status, await response.read()) == (200, b"")
        assert response.content_length == len(whole.body)


async def test_readyz_is_ok_when_both_caches_are_synced(endpoint: Endpoint) -> None:
    reply = await endpoint.send("GET", "/readyz")
    assert (reply.status, reply.text) == (200, f"ok\nThis server runs alone, without Lease and epoch; {ONLY_ONE}.")
