"""/metrics: counters, and the current state."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

import aliquot
from aliquot.endpoints import metrics, native
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.endpoints.volcano import volcano_routes
from aliquot.model import Pod
from tests.factories import make_cards
from tests.integration.endpoints.endpoint import Endpoint, bind_args
from tests.integration.endpoints.serving import served
from tests.integration.endpoints.volcano import ALLOCATED, PENDING, PIPELINED, manifest_of, node_info, task_info
from tests.integration.endpoints.wire import opened
from tests.integration.room import Room


@pytest.fixture
async def shown(room: Room) -> AsyncIterator["Shown"]:
    routes = Routes({**GpuShareEndpoint(room.plane).routes(), **metrics.routes(room.plane)})
    async with served(routes) as url, aiohttp.ClientSession() as session:
        yield Shown(Endpoint(session, url, room))


class Shown:
    """Counters belong to the process, so a test compares with their values before it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    async def samples(self) -> dict[str, float]:
        reply = await self.endpoint.send("GET", "/metrics")
        lines = [line.rpartition(" ") for line in reply.text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    async def added(self, before: dict[str, float]) -> dict[str, float]:
        now = await self.samples()
        return {name: value - before.get(name, 0.0) for name, value in now.items() if value != before.get(name, 0.0)}


async def test_prometheus_can_parse_the_text(shown: Shown) -> None:
    reply = await shown.endpoint.send("GET", "/metrics")
    assert (reply.status, reply.content_type) == (200, "text/plain")
    assert "# TYPE aliquot_commits_total counter" in reply.text
    assert f'aliquot_build_info{{version="{aliquot.__version__}"}} 1.0' in reply.text


async def test_caches_and_role_show_the_current_state(shown: Shown) -> None:
    await shown.endpoint.room.add_node()
    await shown.endpoint.room.add_pod()
    await shown.endpoint.room.add_pod("q")
    found = await shown.samples()
    assert found['aliquot_informer_objects{kind="nodes"}'] == 1
    assert found['aliquot_informer_objects{kind="pods"}'] == 2
    assert found['aliquot_informer_synced{kind="pods"}'] == 1
    assert found['aliquot_role{role="alone"}'] == 1
    assert found['aliquot_role{role="leading"}'] == 0
    assert (found["aliquot_ready"], found["aliquot_epoch"]) == (1, 0)


async def test_filter_calls_and_refusals_are_counted(shown: Shown) -> None:
    await shown.endpoint.room.add_node(make_cards("n1", mib=(15360,)))
    await shown.endpoint.room.add_node(make_cards("n2", mib=(15360, 15360)))
    before = await shown.samples()
    await shown.endpoint.filter(10, "n1", "n2")
    await shown.endpoint.filter(99, "n1", "n2")
    await shown.endpoint.filter(10, "gone")
    await shown.endpoint.filter("many", "n1")
    added = await shown.added(before)
    assert added['aliquot_decisions_total{dialect="gpushare",outcome="fits",verb="filter"}'] == 1
    assert added['aliquot_decisions_total{dialect="gpushare",outcome="fits nowhere",verb="filter"}'] == 2
    assert added['aliquot_refusals_total{reason="too_large"}'] == 2
    assert added['aliquot_refusals_total{reason="unknown_node"}'] == 1
    assert added['aliquot_refusals_total{reason="bad_demand"}'] == 1
    assert added['aliquot_decision_seconds_count{dialect="gpushare",verb="filter"}'] == 3
    assert added['aliquot_decision_seconds_count{dialect="",verb="filter"}'] == 1


async def test_bind_calls_and_their_requests_are_counted(shown: Shown) -> None:
    await shown.endpoint.room.add_node()
    pod = await shown.endpoint.room.add_pod()
    before = await shown.samples()
    assert await shown.endpoint.bind(pod) == ""
    assert await shown.endpoint.bind(pod, "gone") != ""
    added = await shown.added(before)
    assert added['aliquot_decisions_total{dialect="gpushare",outcome="bound",verb="bind"}'] == 1
    assert added['aliquot_decisions_total{dialect="",outcome="refused",verb="bind"}'] == 1
    assert added['aliquot_commits_total{outcome="bound"}'] == 1
    assert added['aliquot_api_requests_total{code="201",method="POST"}'] == 1


def _task(pod: Pod, status: int) -> dict[str, Any]:
    return {"task": task_info(manifest_of(pod), status=status, node="n1")}


CALLS: list[Any] = [
    pytest.param("filter", lambda pod: {"Pod": manifest_of(pod), "NodeNames": ["n1"]}, id="filter"),
    pytest.param("prioritize", lambda pod: {"Pod": manifest_of(pod), "NodeNames": ["n1"]}, id="prioritize"),
    pytest.param("bind", bind_args, id="bind"),
    pytest.param(
        "preempt",
        lambda pod: {"Pod": manifest_of(pod), "NodeNameToMetaVictims": {"n1": {"Pods": []}}},
        id="preempt",
    ),
    pytest.param("vpredicates", lambda pod: _task(pod, PENDING) | {"node": node_info("n1")}, id="vpredicates"),
    pytest.param("vprioritize", lambda pod: _task(pod, PENDING) | {"nodes": [node_info("n1")]}, id="vprioritize"),
    pytest.param("vallocate", lambda pod: _task(pod, ALLOCATED), id="vallocate"),
    pytest.param("vallocate", lambda pod: _task(pod, PIPELINED), id="vallocate of a pipelined task"),
]


@pytest.mark.parametrize(("verb", "call"), CALLS)
@pytest.mark.parametrize(("gpu_mem", "dialect"), [pytest.param(3, "gpushare", id="gpushare"), (None, "")])
async def test_every_verb_is_timed_by_the_dialect_of_its_pod(
    room: Room, verb: str, call: Callable[[Pod], Any], gpu_mem: int | None, dialect: str
) -> None:
    await room.add_node()
    pod = await room.add_pod("p", gpu_mem)
    table = {**native.routes(room.plane), **volcano_routes(room.plane, "native", None, native.PREFIX)}
    async with opened(room, table) as endpoint:
        shown = Shown(endpoint)
        await endpoint.pass_filter(pod, path=f"{native.PREFIX}/filter")
        before = await shown.samples()
        assert (await endpoint.post(f"{native.PREFIX}/{verb}", call(pod))).status == 200
        added = await shown.added(before)
    timed = [name for name in added if name.startswith("aliquot_decision_seconds_count")]
    assert timed == [f'aliquot_decision_seconds_count{{dialect="{dialect}",verb="{verb}"}}']
