"""Volcano's verbs: the answer format of every version, and tasks that Volcano has placed only in its memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aliquot.app.server.endpoints import endpoints
from aliquot.config.server_tree import ServerConfig
from aliquot.control import ControlPlane
from aliquot.control.state.events import QuotasRead
from aliquot.dialects import standard_dialects
from aliquot.dialects.gpushare import IDX
from aliquot.embedded.api import resources
from aliquot.endpoints.forwarding import Forwarder
from aliquot.endpoints.volcano import volcano_routes
from aliquot.endpoints.volcano_wire import Code, PredicateFormat
from aliquot.kube import Client
from aliquot.model import Reason
from aliquot.model.bounds import LARGEST_POD, MAX_ASSUMED_PODS, MAX_ASSUMED_PODS_OF_NODE
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest, make_cards, node_manifest
from tests.fakes import FakeClock, ScriptedApi, until
from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.endpoints.volcano import (
    ALLOCATED,
    BINDING,
    BOUND,
    FITS,
    PIPELINED,
    PREFIX,
    RELEASING,
    RUNNING,
    VERSIONS,
    Cycle,
    amounts,
    manifest_of,
    node_info,
    pod_of,
    task_info,
)
from tests.integration.endpoints.wire import opened
from tests.integration.room import Room

NO_ROOM = "Insufficient GPU Memory in one device"
TOO_LARGE = standard_dialects()["gpushare"].words(Reason.TOO_LARGE)
BEST = 100_000
HALF_CARD = {"tencent.com/vcuda-core": "50", "tencent.com/vcuda-memory": "30"}


@pytest.fixture
async def volcano(room: Room) -> AsyncIterator[Endpoint]:
    """n1 and n2 with two cards of 15 units each."""
    for name in ("n1", "n2"):
        await room.add_node(make_cards(name))
    async with opened(room, volcano_routes(room.plane, "admission", None, PREFIX)) as endpoint:
        yield endpoint


@pytest.fixture
def cycle(volcano: Endpoint) -> Cycle:
    return Cycle(volcano)


def fingerprint(room: Room) -> Any:
    """State that a predicate may not change."""
    entries = sorted((entry.uid, entry.node, entry.state) for entry in room.plane.cluster.ledger.all())
    return entries, room.used("n1"), room.used("n2"), room.api.store.revision


# -- answer formats


@pytest.mark.parametrize(
    ("version", "fits", "refused"),
    [
        pytest.param("1.7.0", {"errorMessage": ""}, lambda why, _: {"errorMessage": why}, id="1.7"),
        pytest.param(
            "1.8.2", {"status": []}, lambda why, code: {"status": [{"Code": code, "Reason": why}]}, id="1.8 and 1.9"
        ),
        pytest.param(
            "1.14.1", {"status": "", "code": 0}, lambda why, code: {"status": why, "code": code}, id="from 1.10 on"
        ),
    ],
)
async def test_a_predicate_is_answered_in_the_format_of_the_caller_s_version(
    volcano: Endpoint, version: str, fits: Any, refused: Any
) -> None:
    cycle = Cycle(volcano, version)
    reply = await volcano.post(f"{PREFIX}/vpredicates", cycle.asked(pod_of("p", 3)))
    assert reply.json == fits
    for name in ("a", "b"):
        cycle.put(pod_of(name, 10))
    reply = await volcano.post(f"{PREFIX}/vpredicates", cycle.asked(pod_of("p", 6)))
    assert reply.json == refused(NO_ROOM, 2)
    reply = await volcano.post(f"{PREFIX}/vpredicates", cycle.asked(pod_of("p", 16)))
    assert reply.json == refused(TOO_LARGE, 3)


@pytest.mark.parametrize("answer_format", list(PredicateFormat))
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_configured_format_applies_to_every_caller(
    room: Room, answer_format: PredicateFormat, version: str
) -> None:
    await room.add_node()
    keys = {
        PredicateFormat.MESSAGE: {"errorMessage"},
        PredicateFormat.LIST: {"status"},
        PredicateFormat.CODE: {"status", "code"},
    }
    async with opened(room, volcano_routes(room.plane, "native", None, PREFIX, answer_format)) as endpoint:
        reply = await endpoint.post(f"{PREFIX}/vpredicates", Cycle(endpoint, version).asked(pod_of("p")))
        assert set(reply.json) == keys[answer_format]
        assert set((await endpoint.send("POST", f"{PREFIX}/vpredicates", b"no")).json) == keys[answer_format]


BAD_BODIES = [
    pytest.param(b"", id="empty"),
    pytest.param(b"{", id="truncated"),
    pytest.param(b"null", id="null"),
    pytest.param(b"[]", id="a list"),
    pytest.param(b'{"task":null,"node":null,"nodes":null}', id="nulls"),
    pytest.param(b'{"task":{},"node":{},"nodes":[{}]}', id="empty objects"),
    pytest.param(b'{"task":{"Pod":{"metadata":7}},"node":{"Name":"n1"},"nodes":[]}', id="an invalid pod"),
    pytest.param(b'{"task":{"Status":"x"},"node":{"Tasks":[]},"nodes":{}}', id="other types"),
    pytest.param(b'{"task":' + b"[" * 100_000, id="deep"),
    pytest.param(b'{"task":{"UID":"\xff"}}', id="not UTF-8"),
]


@pytest.mark.parametrize("body", BAD_BODIES)
async def test_an_unreadable_body_gets_a_well_formed_refusal(volcano: Endpoint, body: bytes) -> None:
    before = fingerprint(volcano.room)
    predicate = (await volcano.send("POST", f"{PREFIX}/vpredicates", body)).json
    assert predicate["code"] == 1
    assert predicate["status"]
    scores = (await volcano.send("POST", f"{PREFIX}/vprioritize", body)).json
    assert scores["nodeScore"] == {}, "a null kills old Volcanos"
    assert scores["errorMessage"]
    for verb in ("vallocate", "vdeallocate"):
        reply = await volcano.send("POST", f"{PREFIX}/{verb}", body)
        assert reply.status == 200
        assert isinstance(reply.json["errorMessage"], str)
    assert fingerprint(volcano.room) == before


async def test_a_server_out_of_sync_says_so_in_every_format(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    sleeping = Room(scripted, client, clock)
    async with opened(sleeping, volcano_routes(sleeping.plane, "admission", None, PREFIX)) as endpoint:
        for version in VERSIONS:
            result = await Cycle(endpoint, version).predicate(pod_of("p"))
            assert result.code is Code.ERROR
            assert "out of sync" in result.why
        assert "out of sync" in await Cycle(endpoint).allocate(pod_of("p"))
        answer = (await endpoint.post(f"{PREFIX}/vprioritize", {"task": task_info(pod_of("p")), "nodes": []})).json
        assert answer["nodeScore"] == {}
        assert "out of sync" in answer["errorMessage"]


async def test_a_follower_without_a_leader_says_so_in_every_format(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    following = Room(scripted, client, clock)
    following.plane = ControlPlane(client, clock)
    async with (
        Forwarder(following.plane, seconds=4.0) as forwarder,
        opened(following, volcano_routes(following.plane, "admission", forwarder, PREFIX)) as endpoint,
    ):
        for version in ("1.7.0", "1.14.1"):
            assert "Lease" in (await Cycle(endpoint, version).predicate(pod_of("p"))).why
        assert "Lease" in await Cycle(endpoint).allocate(pod_of("p"))
        answer = (await endpoint.post(f"{PREFIX}/vprioritize", {"task": task_info(pod_of("p")), "nodes": []})).json
        assert answer["nodeScore"] == {}
        assert "Lease" in answer["errorMessage"]


@pytest.mark.parametrize(("endpoint", "prefix"), [("admission", "/scheduler"), ("native", "/aliquot")])
def test_the_verbs_are_part_of_two_endpoints(room: Room, endpoint: str, prefix: str) -> None:
    routes, _ = endpoints(ServerConfig(), room.plane, None)[endpoint]
    verbs = ("vpredicates", "vprioritize", "vallocate", "vdeallocate")
    assert {("POST", f"{prefix}/{verb}") for verb in verbs} <= routes.keys()


# -- one pod


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_pod_without_gpu_passes_everywhere_and_scores_zero(volcano: Endpoint, version: str) -> None:
    cycle = Cycle(volcano, version)
    for node in ("n1", "ghost"):
        assert await cycle.predicate(pod_of("p", None), node) == FITS
    assert await cycle.scores(pod_of("p", None), "n1", "ghost") == {"n1": 0, "ghost": 0}
    assert await cycle.allocate(pod_of("p", None)) == ""
    assert volcano.room.entries() == {}


@pytest.mark.parametrize(
    ("pod", "node", "code"),
    [
        pytest.param(pod_of("p", 15), "n1", Code.SUCCESS, id="a whole card"),
        pytest.param(pod_of("p", 11), "full", Code.UNSCHEDULABLE, id="room held by other pods"),
        pytest.param(pod_of("p", 16), "full", Code.UNRESOLVABLE, id="more than a card"),
        pytest.param(pod_of("p", 1), "cpu", Code.UNRESOLVABLE, id="a node without GPU"),
        pytest.param(pod_of("p", 1), "ghost", Code.UNRESOLVABLE, id="an unknown node"),
        pytest.param(pod_of("p", "lots"), "n1", Code.UNRESOLVABLE, id="an unreadable demand"),
        pytest.param(pod_of("p", 1), "foreign", Code.UNRESOLVABLE, id="a node where nobody records cards"),
    ],
)
async def test_the_code_says_whether_eviction_could_help(volcano: Endpoint, pod: Any, node: str, code: Code) -> None:
    room = volcano.room
    await room.add_node(make_cards("full", mib=(15360,)))
    await room.add_pod("held", 5, node="full", metadata={"annotations": {IDX: "0"}})
    await room.add_plain_node("cpu", {})
    await room.add_plain_node("foreign", {GPU_MEM: "30", GPU_COUNT: "2"})
    before = fingerprint(room)
    assert (await Cycle(volcano).predicate(pod, node)).code is code
    assert fingerprint(room) == before


async def test_a_node_of_gpu_manager_passes_because_gpu_manager_writes_the_cards(cycle: Cycle, room: Room) -> None:
    offered = {"tencent.com/vcuda-core": "200", "tencent.com/vcuda-memory": "120"}
    room.api.registry.create(resources.NODES, "", node_manifest("theirs", capacity=offered, metadata=theirs("theirs")))
    await room.in_sync()
    pod = pod_of("p", containers=[container_manifest(gpu_mem=None) | {"resources": {"limits": HALF_CARD}}])
    assert await cycle.predicate(pod, "theirs") == FITS


def theirs(name: str) -> dict[str, Any]:
    return {"name": name, "labels": {"nvidia-device-enable": "enable"}}


async def test_the_best_node_has_the_highest_score_and_a_full_node_zero(cycle: Cycle) -> None:
    room = cycle.endpoint.room
    await room.add_node(make_cards("n3", mib=(15360,)))
    await room.add_pod("held-1", 9, node="n1", metadata={"annotations": {IDX: "0"}})
    await room.add_pod("held-3", 14, node="n3", metadata={"annotations": {IDX: "0"}})
    scores = await cycle.scores(pod_of("p", 5), "n1", "n2", "n3", "ghost")
    assert scores == {"n1": BEST, "n2": 0, "n3": 0, "ghost": 0}
    assert await cycle.scores(pod_of("p", 5), "n2") == {"n2": BEST}


# -- tasks that are only in Volcano's memory


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "status",
    [
        pytest.param(ALLOCATED, id="allocated in this cycle"),
        pytest.param(BINDING, id="binding"),
        pytest.param(BOUND, id="bound, and not placed yet"),
    ],
)
async def test_a_task_missing_from_the_ledger_is_charged(volcano: Endpoint, version: str, status: int) -> None:
    cycle = Cycle(volcano, version)
    for name in ("a", "b"):
        assert (await cycle.predicate(pod_of(name, 10))).fits
        cycle.put(pod_of(name, 10), status=status)
    before = fingerprint(volcano.room)
    assert (await cycle.predicate(pod_of("c", 6))).why == NO_ROOM
    assert (await cycle.predicate(pod_of("c", 5))).fits
    assert (await cycle.predicate(pod_of("c", 6), "n2")).fits
    assert fingerprint(volcano.room) == before


async def test_a_task_in_the_ledger_is_charged_once(cycle: Cycle, room: Room) -> None:
    held = await room.add_pod("held", 10, node="n1", metadata={"annotations": {IDX: "0"}})
    for status in (BOUND, RUNNING):
        cycle.tasks.clear()
        cycle.put(manifest_of(held), status=status)
        assert (await cycle.predicate(pod_of("p", 15))).fits
        assert not (await cycle.predicate(pod_of("p", 16))).fits


async def test_tasks_without_gpu_or_with_an_unreadable_demand_are_not_charged(cycle: Cycle) -> None:
    cycle.put(pod_of("a", None))
    cycle.put(pod_of("b", "lots"))
    for name in ("c", "d"):
        assert (await cycle.predicate(pod_of(name, 15))).fits
        cycle.put(pod_of(name, 15))
    assert not (await cycle.predicate(pod_of("e", 1))).fits


async def test_too_many_unknown_tasks_on_a_node_are_refused(volcano: Endpoint) -> None:
    cycle = Cycle(volcano, "1.14.1")
    for number in range(MAX_ASSUMED_PODS_OF_NODE + 1):
        cycle.put(pod_of(f"p{number}", 1))
    result = await cycle.predicate(pod_of("p", 1))
    assert result.code is Code.ERROR
    assert result.why == "node n1 has 257 tasks unknown to Aliquot; the limit is 256"
    assert (await cycle.predicate(pod_of("p", 1), "n2")).fits


async def test_too_many_unknown_tasks_on_all_nodes_are_refused(volcano: Endpoint) -> None:
    cycle = Cycle(volcano, "1.14.1")
    for number in range(MAX_ASSUMED_PODS + 1):
        cycle.put(pod_of(f"p{number}", 1), f"n{number % 20}")
    nodes = [node_info(node, tasks) for node, tasks in cycle.tasks.items()]
    answer = (await volcano.post(f"{PREFIX}/vprioritize", {"task": task_info(pod_of("p", 1)), "nodes": nodes})).json
    why = "these nodes have 4097 tasks unknown to Aliquot; the limit is 4096"
    assert answer == {"nodeScore": {}, "errorMessage": why}


@pytest.mark.parametrize("status", [pytest.param(ALLOCATED, id="put"), pytest.param(PIPELINED, id="coming")])
async def test_tasks_that_exceed_the_effort_of_a_decision_are_not_all_placed(
    cycle: Cycle, room: Room, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    for number in range(10):
        cycle.put(pod_of(f"p{number}", 1), status=status)
    assert (await cycle.predicate(pod_of("p", 1))).fits
    monkeypatch.setattr(room.plane.cluster.searches, "seconds", 0.002)
    result = await cycle.predicate(pod_of("p", 1))
    assert not result.fits
    assert "search limit" in result.why
    assert result.code in (Code.UNSCHEDULABLE, Code.ERROR)  # the oldest versions have no other code
    assert (await cycle.scores(pod_of("p", 1), "n1", "n2")).keys() == {"n1", "n2"}
    cycle.tasks["n1"] = cycle.tasks["n1"][:2]
    assert (await cycle.predicate(pod_of("p", 1))).fits


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"Pod": pod_of("p", 1) | {"x": "x" * LARGEST_POD}}, "task.Pod has more than 2097152", id="pod"),
        pytest.param(
            {"InitResreq": amounts(**{str(n): 1.0 for n in range(9000)})}, "task.InitResreq has more", id="needs"
        ),
        pytest.param({"InitResreq": {"MilliCPU": "x"}}, "cannot decode task.InitResreq", id="not a number"),
    ],
)
async def test_a_task_that_is_too_large_is_refused_with_its_field(
    volcano: Endpoint, fields: dict[str, Any], why: str
) -> None:
    body = {"task": task_info(pod_of("p", 1)) | fields, "node": node_info("n1")}
    answer = (await volcano.post(f"{PREFIX}/vpredicates", body)).json
    assert answer["code"] == Code.ERROR.value
    assert answer["status"].startswith(why)


async def test_scores_count_tasks_that_volcano_has_placed(cycle: Cycle) -> None:
    cycle.put(pod_of("a", 9))
    assert await cycle.scores(pod_of("p", 5), "n1", "n2") == {"n1": BEST, "n2": 0}
    cycle.put(pod_of("b", 15))
    cycle.put(pod_of("c", 6))
    assert await cycle.scores(pod_of("p", 5), "n1", "n2") == {"n1": 0, "n2": BEST}


async def test_a_quota_counts_tasks_of_the_same_cycle(cycle: Cycle, room: Room) -> None:
    room.plane.cluster.apply(QuotasRead('{"default": {"quota": {"Tesla T4": 1}}}'))
    assert (await cycle.predicate(pod_of("a", 10))).fits
    cycle.put(pod_of("a", 10))
    assert (await cycle.predicate(pod_of("b", 6))).code is Code.UNSCHEDULABLE
    assert (await cycle.predicate(pod_of("b", 5))).fits


async def test_a_pod_that_would_leave_no_room_for_the_others_is_refused(cycle: Cycle) -> None:
    """Pods that are bound together are placed largest first, whichever came first."""
    for name, units in (("a", 8), ("b", 7), ("c", 8)):
        assert (await cycle.predicate(pod_of(name, units))).fits
        cycle.put(pod_of(name, units))
    assert (await cycle.predicate(pod_of("d", 7))).fits
    assert not (await cycle.predicate(pod_of("d", 8))).fits


# -- releasing and pipelined pods


async def running(room: Room, name: str, units: int, card: int) -> dict[str, Any]:
    return manifest_of(await room.add_pod(name, units, node="n1", metadata={"annotations": {IDX: str(card)}}))


async def test_a_releasing_pod_s_part_is_not_given_away_at_once(cycle: Cycle, room: Room) -> None:
    cycle.put(await running(room, "old", 15, 0), status=RELEASING)
    cycle.put(await running(room, "stays", 15, 1), status=RUNNING)
    assert (await cycle.predicate(pod_of("p", 5))).code is Code.UNSCHEDULABLE


async def test_a_pod_that_can_only_be_pipelined_may_have_a_releasing_pod_s_part(cycle: Cycle, room: Room) -> None:
    cycle.put(await running(room, "old", 15, 0), status=RELEASING)
    cycle.put(await running(room, "stays", 15, 1), status=RUNNING)
    wants: dict[str, Any] = {"InitResreq": amounts(**{GPU_MEM: 15000})}
    assert (await cycle.predicate(pod_of("p", 15), **wants)).fits
    cycle.put(pod_of("first", 10), status=PIPELINED)
    assert (await cycle.predicate(pod_of("p", 6), **wants)).code is Code.UNSCHEDULABLE
    assert (await cycle.predicate(pod_of("p", 5), **wants)).fits


async def test_a_pod_that_can_only_be_pipelined_has_the_quota_that_is_left_then(cycle: Cycle, room: Room) -> None:
    """Releasing pods of the namespace have freed theirs, and pipelined pods have taken theirs."""
    room.plane.cluster.apply(QuotasRead('{"default": {"memory": {"Tesla T4": "15Gi"}}}'))
    cycle.put(await running(room, "old", 15, 0), status=RELEASING)
    wants: dict[str, Any] = {"InitResreq": amounts(**{GPU_MEM: 15000})}
    assert (await cycle.predicate(pod_of("p", 15))).code is Code.UNSCHEDULABLE, "the quota is used up now"
    assert (await cycle.predicate(pod_of("p", 15), **wants)).fits
    cycle.put(pod_of("first", 10), status=PIPELINED)
    assert (await cycle.predicate(pod_of("p", 6), **wants)).code is Code.UNSCHEDULABLE
    assert (await cycle.predicate(pod_of("p", 5), **wants)).fits


async def test_a_pipelined_pod_overlaps_only_releasing_pods(cycle: Cycle, room: Room) -> None:
    cycle.put(await running(room, "old", 15, 0), status=RELEASING)
    cycle.put(pod_of("waits", 15), status=PIPELINED)
    assert (await cycle.predicate(pod_of("p", 15))).fits, "the other card is free now and later"
    cycle.put(pod_of("waits, too", 15, metadata={"uid": "uid-too"}), status=PIPELINED)
    assert not (await cycle.predicate(pod_of("p", 1))).fits


async def test_a_pipelined_pod_is_accepted_on_a_full_node_without_a_reservation(cycle: Cycle, room: Room) -> None:
    for card in (0, 1):
        await running(room, f"old-{card}", 15, card)
    before = fingerprint(room)
    assert await cycle.allocate(pod_of("p", 15), status=PIPELINED) == ""
    assert await cycle.allocate(pod_of("q", 16), status=PIPELINED) == TOO_LARGE
    assert fingerprint(room) == before


# -- allocateFunc and deallocateFunc


async def test_an_allocated_pod_holds_a_reservation_until_it_is_released(cycle: Cycle, room: Room) -> None:
    assert await cycle.allocate(await room.put_pod(pod_of("a", 10))) == ""
    assert room.used() == {0: 10}
    (task,) = cycle.tasks["n1"]
    assert await cycle.tell("vdeallocate", task) == ""
    assert room.used() == {}


async def test_an_allocated_pod_is_refused_if_another_was_faster(cycle: Cycle, room: Room) -> None:
    pod = await room.put_pod(pod_of("a", 10))
    assert (await cycle.predicate(pod)).fits
    for card in (0, 1):
        await running(room, f"faster-{card}", 10, card)
    assert await cycle.allocate(pod) == NO_ROOM
    assert set(room.used().values()) == {10}


async def test_a_reservation_passes_its_own_pod_and_no_other(cycle: Cycle, room: Room) -> None:
    first, second = [await room.put_pod(pod_of(name, 15)) for name in ("a", "b")]
    for pod in (first, second):
        assert await cycle.allocate(pod) == ""
    anew = Cycle(cycle.endpoint)
    assert (await anew.predicate(first)).fits
    assert (await anew.predicate(pod_of("c", 1))).code is Code.UNSCHEDULABLE
    assert await anew.scores(first, "n1", "n2") != {"n1": 0, "n2": BEST}
    assert await anew.allocate(first, "n2") == ""
    assert (sum(room.used("n1").values()), sum(room.used("n2").values())) == (15, 15)


async def test_an_unused_reservation_expires(cycle: Cycle, room: Room, clock: FakeClock) -> None:
    assert await cycle.allocate(await room.put_pod(pod_of("a", 10))) == ""
    await clock.move(room.plane.settings.late.hold)
    await until(lambda: room.used() == {})


async def test_evicting_a_bound_pod_releases_nothing_before_it_ends(cycle: Cycle, room: Room) -> None:
    task = cycle.put(await running(room, "old", 10, 0), status=RELEASING)
    assert await cycle.tell("vdeallocate", task) == ""
    assert room.used() == {0: 10}
    assert await cycle.tell("vallocate", {**task, "Status": RUNNING}) == "", "as Volcano says when it thinks better"
    assert room.used() == {0: 10}
