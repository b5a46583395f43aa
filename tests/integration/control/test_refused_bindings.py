"""A Binding that was not made gives its part back at once; one that may have been made does not."""

import asyncio
import contextlib

import msgspec
import pytest

from aliquot.control import ClusterState
from aliquot.control.state.events import NodeSeen
from aliquot.dialects.gpushare import IDX
from aliquot.embedded.api import resources
from aliquot.errors import NoRoom, Refused
from aliquot.kube import Access, ApiError, Client, KubeError, NoAnswer, NotFound, NotSent
from aliquot.ledger import State
from aliquot.model import Pod
from tests.factories import make_cards, make_node, pod_manifest
from tests.fakes import FakeClock, Fault, ScriptedApi, answer, cut_before, held
from tests.integration.room import Commits, Room

BINDING = "/binding$"


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        pytest.param(answer(403, message="not you"), ApiError, "not you", id="forbidden"),
        pytest.param(answer(404, message="no pod"), NotFound, "no pod", id="no such pod"),
        pytest.param(answer(409, message="busy"), Refused, "busy", id="a conflict, and the pod is not bound"),
        pytest.param(answer(422, message="old epoch"), ApiError, "old epoch", id="refused by a policy"),
        pytest.param(answer(429, message="slow down"), ApiError, "slow down", id="too many requests"),
    ],
)
async def test_a_refused_binding_gives_the_part_back_at_once(
    room: Room, fault: Fault, error: type[Exception], text: str
) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    pod, other = await room.add_pod("p", 10), await room.add_pod("q", 10)
    room.api.script("POST", BINDING, fault)
    with pytest.raises(error, match=text):
        await room.commit(pod, "n1")
    assert room.used() == {}
    await room.commit(other, "n1")


async def test_an_api_server_that_cannot_be_reached_gives_the_part_back_at_once(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    async with ScriptedApi() as api:
        access = Access(api.url)
    async with Client(access) as nowhere:
        with pytest.raises(NotSent):
            await room.committer(nowhere).commit(pod, "n1")
    assert room.used() == {}


REFUSALS = [
    pytest.param(answer(429, message="slow down"), id="too many requests"),
    pytest.param(answer(403, message="not you"), id="forbidden"),
    pytest.param(answer(409, message="busy"), id="a conflict"),
]


@pytest.mark.parametrize("second", REFUSALS)
async def test_a_second_binding_that_is_refused_keeps_the_claim_of_the_first_whose_fate_is_unknown(
    room: Room, second: Fault
) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    pod, other = await room.add_pod("p", 10), await room.add_pod("q", 10)
    room.api.script("POST", BINDING, cut_before, second)
    for _ in range(2):
        with pytest.raises((KubeError, Refused)):
            await room.commit(pod, "n1")
    assert room.used() == {0: 10}
    with pytest.raises(NoRoom):
        await room.commit(other, "n1")


@pytest.mark.parametrize("second", REFUSALS)
async def test_a_second_binding_that_is_refused_leaves_a_bound_pod_its_part(room: Room, second: Fault) -> None:
    """The scheduler timed out and asks again; that this one fails says nothing about the first."""
    await room.add_node()
    pod = await room.add_pod()
    await room.commit(pod, "n1")
    room.api.script("POST", BINDING, second)
    with contextlib.suppress(KubeError, Refused):
        await room.commit(pod, "n1")
    assert room.used() == {0: 3}
    assert room.entries()[pod.metadata.uid].state is State.BOUND


async def test_a_pod_that_is_being_deleted_is_refused_and_holds_nothing(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod(metadata={"finalizers": ["tests.example/wait"]})
    await room.delete_pod(pod)
    with pytest.raises(Refused, match="is being deleted"):
        await room.commit(pod, "n1")
    assert room.used() == {}


async def test_a_pod_that_was_deleted_meanwhile_is_refused_and_holds_nothing(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    await room.delete_pod(pod)
    with pytest.raises(NotFound):
        await room.commit(pod, "n1")
    assert room.used() == {}


async def test_a_pod_made_again_under_its_name_does_not_get_the_part_of_the_first(room: Room) -> None:
    await room.add_node()
    first = await room.add_pod()
    await room.delete_pod(first)
    second = await room.add_pod(gpu_mem=5)
    with pytest.raises(Refused, match="UID in precondition"):
        await room.commit(first, "n1")
    assert room.used() == {}
    assert "nodeName" not in room.api_pod(second)["spec"]


async def test_a_pod_bound_elsewhere_by_someone_else_holds_nothing_here(room: Room) -> None:
    await room.add_node(make_cards("n1"))
    await room.add_node(make_cards("n2"))
    pod = await room.add_pod()
    binding = {"metadata": {"name": "p", "namespace": "default"}, "target": {"name": "n2"}}
    await room.client.bind(binding, timeout=20)
    with pytest.raises(Refused, match='already assigned to node "n2"'):
        await room.commit(pod, "n1")
    await room.in_sync()
    assert (room.used("n1"), room.used("n2")) == ({}, {})


async def test_a_claim_falls_when_the_pod_is_seen_elsewhere_without_a_placement(room: Room) -> None:
    for node in ("n1", "n2"):
        await room.add_node(make_cards(node))
    pod = await room.add_pod()
    room.api.script("POST", BINDING, cut_before)
    with pytest.raises(NoAnswer):
        await room.commit(pod, "n1")
    assert room.used("n1") == {0: 3}
    binding = {"metadata": {"name": "p", "namespace": "default"}, "target": {"name": "n2"}}
    await room.client.bind(binding, timeout=20)
    await room.in_sync()
    assert (room.used("n1"), room.used("n2")) == ({}, {})


async def test_a_pod_that_the_original_placed_keeps_its_part_when_it_is_bound_again(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod(metadata={"annotations": {IDX: "1"}}, node="n1")
    assert room.used() == {1: 3}
    with pytest.raises(Refused, match="already assigned"):
        await room.commit(pod, "n1")
    assert room.used() == {1: 3}


async def test_a_binding_that_was_answered_is_settled_before_the_watch_shows_it(
    client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    """This cluster state sees nothing of the cluster but what they are told here."""
    cluster = ClusterState()
    cluster.apply(NodeSeen(make_node("n1", make_cards())))
    created = scripted.registry.create(resources.PODS, "default", pod_manifest())
    pod = msgspec.convert(created.obj, Pod)
    assert not (await Commits(client, cluster, clock).commit(pod, "n1")).already
    assert cluster.is_settled(pod.metadata.uid, "n1")
    assert cluster.ledger.nodes_of(pod.metadata.uid) == {"n1"}


async def test_two_calls_for_one_pod_at_once_make_one_claim(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    await asyncio.gather(room.commit(pod, "n1"), room.commit(pod, "n1"))
    await room.in_sync()
    assert room.used() == {0: 3}


async def test_a_cancelled_commit_keeps_its_claim_until_the_cluster_shows_what_became_of_it(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("POST", BINDING, held(arrived, release))
    committing = asyncio.create_task(room.commit(pod, "n1"))
    await arrived.wait()
    committing.cancel()
    await asyncio.gather(committing, return_exceptions=True)
    assert room.used() == {0: 3}
    await room.clock.move(71)
    await room.in_sync()
    await room.plane.transactions.settle()
    assert room.used() == {}


async def test_a_pod_whose_size_users_may_rewrite_is_bound_only_as_it_was_read(room: Room) -> None:
    """Otherwise it could grow between our reading and the Binding, and the next server would count it larger."""
    await room.add_node()
    read = await room.add_pod("p", 4, metadata={"labels": {"aliyun.com/gpu-count": "2"}})
    await room.annotate(read, anything="new")
    with pytest.raises(Refused):
        await room.commit(read, "n1")
    assert room.used() == {}
    now = room.plane.pods.get("default/p")
    assert now is not None
    assert not (await room.commit(now, "n1")).already
