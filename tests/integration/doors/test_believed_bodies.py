"""What is remembered of a call's answer is about a pod as our mirror has it, whatever the body says of it: made-up
pods, borrowed UIDs and false demands change nothing of what is known of others."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from aliquot.doors import native
from aliquot.doors.admission import AdmissionDoor
from aliquot.doors.volcano import volcano_routes
from aliquot.embedded.api import resources
from aliquot.model import Pod
from aliquot.model.admission import WOKEN
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import until
from tests.integration.doors.door import NOT_PASSED, Door, bind_args
from tests.integration.doors.volcano import ALLOCATED, manifest_of, pod_of, task_info
from tests.integration.doors.wire import names_call, opened
from tests.integration.room import Room

FILTER, BIND, PREEMPT = "/aliquot/filter", "/aliquot/bind", "/aliquot/preempt"
SERVED = frozenset({"default-scheduler"})
LONG = "u" * 254


@pytest.fixture
async def door(room: Room) -> AsyncIterator[Door]:
    """Our own routes, gpu-admission's and Volcano's; n1 has two cards of 15 units."""
    await room.add_node(make_cards("n1"))
    room.plane.change(replace(room.plane.settings, schedulers=SERVED))
    volcano = volcano_routes(room.plane, "admission", None, "/scheduler")
    async with opened(room, {**AdmissionDoor(room.plane).routes(), **volcano, **native.routes(room.plane)}) as open_:
        yield open_


async def filtered(door: Door, pod: Any, path: str = FILTER) -> list[str]:
    return list((await door.post(path, names_call(pod, ["n1"]))).json["NodeNames"])


async def bound(door: Door, pod: Pod) -> str:
    return str((await door.post(BIND, bind_args(pod))).json["Error"])


async def full(door: Door) -> list[Pod]:
    """Pods that hold a card of n1 each."""
    pods = [await door.room.add_pod(name, 15) for name in ("first", "second")]
    for pod in pods:
        await door.let_pass(pod, path=FILTER)
        assert await bound(door, pod) == ""
    await door.room.in_step()
    return pods


def lying(pod: Pod, **spec: Any) -> dict[str, Any]:
    manifest = manifest_of(pod)
    return {**manifest, "spec": {**manifest["spec"], **spec}}


def asking(pod: Pod, units: int) -> dict[str, Any]:
    return lying(pod, containers=pod_manifest(gpu_mem=units)["spec"]["containers"])


def impostor(pod: Pod, units: int = 999) -> dict[str, Any]:
    """A made-up pod of another namespace with a real pod's UID."""
    return pod_of("whoever", units, namespace="evil", metadata={"uid": pod.metadata.uid})


def woken(room: Room) -> list[str]:
    return [seen.path.rpartition("/")[2] for seen in room.api.writes() if WOKEN in str(seen.body)]


async def look(room: Room) -> None:
    await room.clock.move(2.0)
    await room.plane.waker.look()
    await until(lambda: not room.api.busy, "the API server has nothing to do")
    await room.in_step()


# -- who waits


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param({"gpu_mem": None, "schedulerName": "theirs"}, id="without GPU, of another scheduler"),
        pytest.param({"gpu_mem": None}, id="without GPU"),
        pytest.param({"gpu_mem": 15, "schedulerName": "theirs"}, id="of another scheduler"),
    ],
)
async def test_a_pod_that_is_none_of_ours_is_not_written_on(door: Door, room: Room, theirs: dict[str, Any]) -> None:
    holders = await full(door)
    pod = await room.add_pod("theirs", theirs.pop("gpu_mem"), **theirs)
    assert await filtered(door, asking(pod, 15)) == []
    await room.delete_pod(holders[0])
    await room.annotate(pod, touched="yes")
    await look(room)
    assert (woken(room), room.plane.waker.waiting) == ([], 0)


async def test_a_pod_that_was_refused_as_it_is_waits_and_is_woken(door: Door, room: Room) -> None:
    holders = await full(door)
    pod = await room.add_pod("p", 15)
    assert await filtered(door, manifest_of(pod)) == []
    await room.delete_pod(holders[0])
    await look(room)
    assert woken(room) == ["p"]


async def test_of_made_up_pods_nothing_but_some_uids_is_kept(door: Door, room: Room) -> None:
    waker = room.plane.waker
    real = await room.add_pod("real", 999)
    await filtered(door, manifest_of(real))
    large = {"annotations": {f"k{number}": "x" * 490 for number in range(3_000)}}
    await filtered(door, pod_of("invented", 999, metadata=large))
    assert (waker.waiting, waker.early) == (1, 1)
    for number in range(2_000):
        waker.refused_early(f"made-up-{number}")
    assert (waker.waiting, waker.early) == (1, 1_000)


async def test_pods_of_one_namespace_do_not_push_out_those_of_others(door: Door, room: Room) -> None:
    waker = room.plane.waker
    real = await room.add_pod("real", 999)
    await filtered(door, manifest_of(real))
    flood = msgspec.convert(pod_of("flood", 999, namespace="evil"), Pod)
    for number in range(20_000):
        waker.refused(msgspec.structs.replace(flood, metadata=replace_uid(flood, f"u-{number}")))
    assert waker.waiting == 2_001
    waker.passed(real)
    assert waker.waiting == 2_000, "it still waited"


def replace_uid(pod: Pod, uid: str) -> Any:
    return msgspec.structs.replace(pod.metadata, uid=uid)


def created(room: Room) -> Pod:
    """A pod of which our mirror has not heard."""
    manifest = pod_manifest("early", 15)
    return msgspec.convert(room.api.registry.create(resources.PODS, "default", manifest).obj, Pod)


async def test_a_pod_that_is_refused_before_our_mirror_knows_it_waits_when_it_does(door: Door, room: Room) -> None:
    """With the room that came up in between."""
    await full(door)
    async with room.late_mirror():
        pod = created(room)
        assert await filtered(door, manifest_of(pod)) == []
        assert (room.plane.waker.waiting, room.plane.waker.early) == (0, 1)
        cards = make_cards("n2")
        room.api.registry.create(resources.NODES, "", node_manifest("n2", cards))
        await until(lambda: room.plane.nodes.get("n2") is not None)
    await room.in_step()
    assert (room.plane.waker.waiting, room.plane.waker.early) == (1, 0)
    await look(room)
    assert woken(room) == ["early"]


async def test_a_pod_whose_demand_was_rewritten_a_moment_ago_waits_when_our_mirror_shows_that(
    door: Door, room: Room
) -> None:
    await full(door)
    whole = [{"name": "main", "image": "registry.example/app:1", "resources": {"limits": {"aliquot.io/gpu": "1"}}}]
    pod = await room.add_pod("p", containers=whole)
    ahead = manifest_of(pod)
    ahead["metadata"]["annotations"] = {"aliquot.io/memory": "15Gi"}
    assert await filtered(door, ahead) == []
    assert room.plane.waker.waiting == 0
    await room.annotate(pod, **{"aliquot.io/memory": "15Gi"})
    assert room.plane.waker.waiting == 1


@pytest.mark.parametrize("units", [1, 999], ids=["passes", "is refused"])
async def test_a_false_demand_changes_nothing_for_a_pod_that_waits(door: Door, room: Room, units: int) -> None:
    holders = await full(door)
    pod = await room.add_pod("p", 15)
    assert await filtered(door, manifest_of(pod)) == []
    await room.delete_pod(holders[0])
    await filtered(door, asking(pod, units))
    await filtered(door, impostor(pod, units))
    await look(room)
    assert woken(room) == ["p"]


# -- who passed


async def test_a_filter_with_a_false_demand_lets_nobody_be_bound(door: Door, room: Room) -> None:
    pod = await room.add_pod("big", 16)
    assert await filtered(door, manifest_of(pod)) == []
    assert await filtered(door, asking(pod, 1)) == ["n1"]
    assert await bound(door, pod) == NOT_PASSED


@pytest.mark.parametrize(("units", "error"), [(15, ""), (1, NOT_PASSED)], ids=["true", "false"])
async def test_a_demand_that_was_told_before_our_mirror_knew_the_pod_must_be_the_pods(
    door: Door, room: Room, units: int, error: str
) -> None:
    async with room.late_mirror():
        pod = created(room)
        assert await filtered(door, asking(pod, units)) == ["n1"]
    await room.in_step()
    assert await bound(door, pod) == error


@pytest.mark.parametrize("lie", [impostor, lambda pod: asking(pod, 999)], ids=["impostor", "demand"])
async def test_a_pass_is_not_erased_by_what_others_say_of_the_pod(door: Door, room: Room, lie: Any) -> None:
    pod = await room.add_pod("p", 1)
    await door.let_pass(pod, path=FILTER)
    assert await filtered(door, lie(pod)) == []
    assert await bound(door, pod) == ""


async def test_passes_of_one_namespace_do_not_push_out_those_of_others(door: Door, room: Room) -> None:
    pod = await room.add_pod("p", 1)
    await door.let_pass(pod, path=FILTER)
    for number in range(30_000):
        room.plane.passes.put(f"u-{number}", room.plane.books.fleet, [0], asked=0, namespace="evil")
    assert len(room.plane.passes) == 5_001
    assert await bound(door, pod) == ""


# -- for whom victims are named


async def preempted(door: Door, pod: Any, *victims: str) -> dict[str, Any]:
    proposed = {"n1": {"Pods": [{"UID": uid} for uid in victims], "NumPDBViolations": 0}}
    reply = await door.post(PREEMPT, {"Pod": pod, "NodeNameToMetaVictims": proposed})
    return dict(reply.json["NodeNameToMetaVictims"])


async def test_a_false_priority_lets_no_pod_pass_on_a_full_node(door: Door, room: Room) -> None:
    holders = await full(door)
    pod = await room.add_pod("p", 15)
    assert await preempted(door, lying(pod, priority=2_000_000_000), holders[0].metadata.uid) != {}
    assert len(room.plane.preemptions) == 0
    assert await filtered(door, manifest_of(pod)) == []


async def test_a_false_priority_before_our_mirror_knows_the_pod_does_not_count_afterwards(
    door: Door, room: Room
) -> None:
    holders = await full(door)
    async with room.late_mirror():
        pod = created(room)
        assert await preempted(door, lying(pod, priority=2_000_000_000), holders[0].metadata.uid) != {}
        assert len(room.plane.preemptions) == 1
    await room.in_step()
    assert await filtered(door, manifest_of(pod)) == []


async def test_an_impostor_does_not_change_the_victims_of_a_pod(door: Door, room: Room) -> None:
    holders = await full(door)
    pod = await room.add_pod("p", 15)
    await preempted(door, manifest_of(pod), holders[0].metadata.uid)
    assert await filtered(door, manifest_of(pod)) == ["n1"]
    await preempted(door, impostor(pod, 15), holders[1].metadata.uid)
    assert len(room.plane.preemptions) == 1
    assert await filtered(door, manifest_of(pod)) == ["n1"]


async def test_made_up_victims_are_not_remembered(door: Door, room: Room) -> None:
    pod = await room.add_pod("p", 15)
    await preempted(door, manifest_of(pod), *(f"made-up-{number}" for number in range(100)))
    assert len(room.plane.preemptions) == 0


def test_victims_for_pods_of_one_namespace_do_not_push_out_those_for_others(room: Room) -> None:
    named = room.plane.preemptions
    named.name("real", {"n1": ["victim"]}, asked=1, namespace="default")
    for number in range(2_000):
        named.name(f"u-{number}", {"n1": ["victim"]}, asked=1, namespace="evil")
        named.name(f"v-{number}", {"n1": ["victim"]}, asked=1)
    assert len(named) == 1 + 256 + 128
    assert named.victims_of("real", 1) == {"n1": {"victim"}}


# -- how long a UID may be


TOO_LONG: list[Any] = [
    pytest.param(FILTER, names_call(pod_of("p", 1, metadata={"uid": LONG}), ["n1"]), id="filter"),
    pytest.param(FILTER, names_call(pod_of(LONG, 1), ["n1"]), id="filter: the name"),
    pytest.param(FILTER, names_call(pod_of("p", 1, namespace=LONG), ["n1"]), id="filter: the namespace"),
    pytest.param("/scheduler/predicates", names_call(pod_of("p", 1, metadata={"uid": LONG}), ["n1"]), id="predicates"),
    pytest.param("/aliquot/prioritize", names_call(pod_of("p", 1, metadata={"uid": LONG}), ["n1"]), id="prioritize"),
    pytest.param(
        BIND, {"PodName": "p", "PodNamespace": "default", "PodUID": LONG, "Node": "n1"}, id="bind: the pod's UID"
    ),
    pytest.param(PREEMPT, {"Pod": pod_of("p", 1, metadata={"uid": LONG})}, id="preempt: the pod's UID"),
    pytest.param(
        PREEMPT,
        {"Pod": pod_of("p", 1), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": LONG}]}}},
        id="preempt: a victim's",
    ),
    pytest.param(
        PREEMPT,
        {"Pod": pod_of("p", 1), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u" * 300}] * 1_000}}},
        id="preempt: one of many victims'",
    ),
    pytest.param(
        PREEMPT,
        {"Pod": pod_of("p", 1), "NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": LONG}}]}}},
        id="preempt: a whole victim's",
    ),
    pytest.param("/scheduler/vallocate", {"task": task_info(pod_of("p", 1), UID=LONG)}, id="vallocate: the task's"),
    pytest.param(
        "/scheduler/vallocate",
        {"task": {**task_info(pod_of("p", 1, metadata={"uid": LONG}), status=ALLOCATED, node="n1"), "UID": "u"}},
        id="vallocate: the pod's",
    ),
    pytest.param("/scheduler/vdeallocate", {"task": task_info(pod_of("p", 1), UID=LONG)}, id="vdeallocate"),
]


@pytest.mark.parametrize(("path", "body"), TOO_LONG)
async def test_a_uid_that_no_pod_has_is_refused_and_nothing_is_kept(
    door: Door, room: Room, path: str, body: dict[str, Any]
) -> None:
    reply = await door.post(path, body)
    assert any(word in reply.body for word in (b"253", b"is no name"))
    plane = room.plane
    assert (len(plane.passes), len(plane.preemptions), plane.waker.early) == (0, 0, 0)


async def test_a_uid_as_long_as_may_be_is_taken(door: Door) -> None:
    assert await filtered(door, pod_of("p", 1, metadata={"uid": LONG[1:]})) == ["n1"]


# -- what is given back, and told


def audit_lines(lines: Any) -> list[tuple[str, str, str]]:
    return [(line["verb"], line["pod"], line["verdict"]) for line in lines if line["event"] == "audit"]


async def kept(door: Door, name: str = "p") -> Pod:
    pod = await door.room.add_pod(name, 15)
    task = task_info(manifest_of(pod), status=ALLOCATED, node="n1")
    assert (await door.post("/scheduler/vallocate", {"task": task})).json == {"errorMessage": ""}
    return pod


@pytest.mark.parametrize("how", ["another scheduler", "another pod", "another UID"])
async def test_volcano_gives_back_nothing_of_pods_that_are_none_of_its_own(door: Door, room: Room, how: str) -> None:
    pod = await kept(door)
    task = task_info(manifest_of(pod), status=ALLOCATED, node="n1")
    if how == "another scheduler":
        room.plane.change(replace(room.plane.settings, schedulers=frozenset({"volcano"})))
    elif how == "another pod":
        task["Pod"]["metadata"]["name"] = "other"
    else:
        task["Pod"] = manifest_of(await room.add_pod("q", 1))
    with capture_logs() as lines:
        assert (await door.post("/scheduler/vdeallocate", {"task": task})).json["errorMessage"]
    assert audit_lines(lines) == [("vdeallocate", f"default/{task['Pod']['metadata']['name']}", "refused")]
    assert list(room.entries()) == [pod.metadata.uid]


async def test_a_vdeallocate_that_cannot_be_read_is_told(door: Door) -> None:
    with capture_logs() as lines:
        await door.post("/scheduler/vdeallocate", {"task": 1})
    assert audit_lines(lines) == [("vdeallocate", "", "refused")]


async def test_what_volcano_gives_back_is_told(door: Door, room: Room) -> None:
    pod = await kept(door)
    with capture_logs() as lines:
        await door.post("/scheduler/vdeallocate", {"task": task_info(manifest_of(pod), node="n1")})
    assert audit_lines(lines) == [("vdeallocate", "default/p", "given back")]
    assert room.entries() == {}


@pytest.mark.parametrize("how", ["another scheduler", "another demand"])
async def test_a_filter_gives_back_nothing_of_pods_that_are_none_of_ours(door: Door, room: Room, how: str) -> None:
    pod = await kept(door)
    body = manifest_of(pod)
    if how == "another scheduler":
        room.plane.change(replace(room.plane.settings, schedulers=frozenset({"volcano"})))
    else:
        body = asking(pod, 999)
    await filtered(door, body, "/scheduler/predicates")
    assert list(room.entries()) == [pod.metadata.uid]


async def test_whoever_is_not_asked_who_it_is_speaks_for_nobody_else(door: Door, room: Room) -> None:
    pod = await room.add_pod("p", 1)
    await door.let_pass(pod, path=FILTER)
    claim = {"X-Aliquot-Caller": "system:kube-scheduler at 10.0.0.1"}
    with capture_logs() as lines:
        await door.send("POST", BIND, msgspec.json.encode(bind_args(pod)), claim)
    (line,) = (line for line in lines if line["event"] == "audit")
    assert (line["caller"], line["verdict"], line.get("on_behalf_of")) == ("anyone", "bound", None)
