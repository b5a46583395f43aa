"""Victims that we add count as violations of the disruption budgets that protect them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.endpoints import native
from aliquot.endpoints.asgi import Routes
from aliquot.kube import Access, Client
from aliquot.model import Pod
from tests.factories import make_cards, pod_manifest
from tests.fakes import Embedded, FakeClock, ScriptedApi, answer, until
from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.endpoints.serving import served
from tests.integration.room import Room

ACCOUNT = "system:serviceaccount:kube-system:original"
ORIGINAL = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]},
]
READ_BUDGETS = {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list", "watch"]}
APP = {"app": "web"}
MISSING = (
    "may not list poddisruptionbudgets: the server does not count the victims that it adds as violations of a budget"
)
RULE = '- {apiGroups: ["policy"], resources: [poddisruptionbudgets], verbs: [list, watch]}'


@asynccontextmanager
async def opened(room: Room) -> AsyncIterator[Endpoint]:
    async with served(Routes(native.routes(room.plane))) as url, aiohttp.ClientSession() as session:
        yield Endpoint(session, url, room)


@pytest.fixture
async def endpoint(room: Room) -> AsyncIterator[Endpoint]:
    async with opened(room) as endpoint:
        yield endpoint


async def sold(room: Room, *labels: dict[str, str]) -> list[Pod]:
    """A card of 15 on which each pod holds 5."""
    await room.add_node(make_cards("n1", mib=(15 * 1024,)))
    card = {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "0"}}
    return [
        await room.add_pod(f"web-{number}", 5, metadata={**card, "labels": own}, node="n1")
        for number, own in enumerate(labels)
    ]


def put_budget(api: ScriptedApi, allowed: int) -> None:
    """A budget for the app, with the status that its controller sets."""
    spec = {"selector": {"matchLabels": APP}, "minAvailable": 1}
    api.registry.create(resources.BUDGETS, "default", {"metadata": {"name": "web"}, "spec": spec})
    say(api, disruptionsAllowed=allowed)


def say(api: ScriptedApi, **status: Any) -> None:
    api.registry.rewrite(resources.BUDGETS, "default", "web", lambda now: {**now, "status": status})


async def is_seen(room: Room) -> None:
    def same() -> bool:
        held = room.api.store.get(resources.BUDGETS.collection, ("default", "web"))
        cached = room.plane.budgets.informer.get("default/web")
        return (cached.metadata.resource_version if cached else "") == (str(held.revision) if held else "")

    await until(same, "the budget is seen", passing=room.clock)


async def answered(endpoint: Endpoint, proposed: Sequence[Pod], given: int) -> tuple[set[str], int]:
    """The victims' UIDs, and the violations."""
    victims = {"Pods": [{"UID": pod.metadata.uid} for pod in proposed], "NumPDBViolations": given}
    call = {"Pod": pod_manifest("big", 15, priority=100), "NodeNameToMetaVictims": {"n1": victims}}
    reply = await endpoint.post("/aliquot/preempt", call)
    found = reply.json["NodeNameToMetaVictims"]["n1"]
    return {pod["UID"] for pod in found["Pods"]}, found["NumPDBViolations"]


@pytest.mark.parametrize(
    ("labels", "proposed", "allowed", "given", "violations"),
    [
        pytest.param([APP] * 3, 1, 0, 1, 3, id="two protected victims are added"),
        pytest.param([APP] * 3, 1, 2, 0, 1, id="the proposed victim uses up the budget too"),
        pytest.param([APP] * 3, 1, 3, 0, 0, id="the budget is enough"),
        pytest.param([APP] * 3, 3, 0, 3, 3, id="no victim is added"),
        pytest.param([APP, APP, {"app": "db"}], 1, 0, 1, 2, id="one of two added victims is protected"),
        pytest.param([APP, {}, {}], 1, 0, 1, 1, id="added victims are not protected"),
        pytest.param([APP] * 3, 1, 1, 1, 3, id="the scheduler's own count stays"),
        pytest.param([APP] * 3, 0, 1, 0, 2, id="all victims are added"),
    ],
)
async def test_violations_add_to_the_scheduler_s_count(
    endpoint: Endpoint, labels: list[dict[str, str]], proposed: int, allowed: int, given: int, violations: int
) -> None:
    pods = await sold(endpoint.room, *labels)
    put_budget(endpoint.room.api, allowed)
    await is_seen(endpoint.room)
    everybody = {pod.metadata.uid for pod in pods}
    assert await answered(endpoint, pods[:proposed], given) == (everybody, violations)


async def test_the_current_state_of_a_budget_counts(endpoint: Endpoint) -> None:
    pods = await sold(endpoint.room, APP, APP, APP)
    assert (await answered(endpoint, pods[:1], 0))[1] == 0
    put_budget(endpoint.room.api, 0)
    await is_seen(endpoint.room)
    assert (await answered(endpoint, pods[:1], 1))[1] == 3
    say(endpoint.room.api, disruptionsAllowed=0, disruptedPods={"web-1": "2026-05-04T12:00:00Z", "web-2": None})
    await is_seen(endpoint.room)
    assert (await answered(endpoint, pods[:1], 1))[1] == 1
    endpoint.room.api.registry.delete(resources.BUDGETS, "default", "web", DeleteRequest())
    await is_seen(endpoint.room)
    assert (await answered(endpoint, pods[:1], 0))[1] == 0


async def test_budgets_are_listed_before_the_first_call(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    put_budget(scripted, 0)
    async with Room(scripted, client, clock) as room:
        assert room.plane.budgets.informer.get("default/web") is not None


async def test_without_the_right_nothing_is_counted_and_one_note_shows_the_rule_to_add(clock: FakeClock) -> None:
    embedded = Embedded()
    embedded.cluster.users.add(ACCOUNT, token="secret", rules=ORIGINAL)
    async with ScriptedApi(embedded) as scripted, Client(Access(scripted.url, token="secret")) as client:
        put_budget(scripted, 0)
        with capture_logs() as logs:
            async with Room(scripted, client, clock) as room, opened(room) as endpoint:
                pods = await sold(room, APP, APP, APP)
                assert room.plane.not_ready() == []
                assert (await answered(endpoint, pods[:1], 1))[1] == 1
                (note,) = room.plane.budgets.notes()
                assert note.startswith(MISSING)
                assert note.endswith(f"; the rule to add: {RULE}")
                asked = len(seen_of(scripted))
                await until(lambda: len(seen_of(scripted)) > asked, "it looks again", passing=clock)
                embedded.cluster.users.add(ACCOUNT, token="secret", rules=[*ORIGINAL, READ_BUDGETS])
                await is_seen(room)
                assert room.plane.budgets.notes() == []
                assert (await answered(endpoint, pods[:1], 1))[1] == 3
    (logged,) = [line for line in logs if line["event"] == "a right is missing" and "budgets" in line["why"]]
    assert logged["rule_to_add"] == RULE


def seen_of(api: ScriptedApi) -> list[Any]:
    return [seen for seen in api.seen if seen.path.endswith("/poddisruptionbudgets")]


async def test_an_api_server_without_budgets_is_no_problem(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    scripted.script("GET", "poddisruptionbudgets", *[answer(404)] * 2)
    put_budget(scripted, 0)
    with capture_logs() as logs:
        async with Room(scripted, client, clock) as room, opened(room) as endpoint:
            (note,) = room.plane.budgets.notes()
            assert note.startswith(
                "the API server does not serve apis/policy/v1/poddisruptionbudgets: the server does not count"
            )
            pods = await sold(room, APP, APP, APP)
            assert room.plane.not_ready() == []
            assert (await answered(endpoint, pods[:1], 1))[1] == 1
            await is_seen(room)
            assert (await answered(endpoint, pods[:1], 1))[1] == 3
    assert [line for line in logs if line["log_level"] in ("warning", "error")] == []
