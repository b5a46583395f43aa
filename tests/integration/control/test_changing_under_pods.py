"""Names that are used again, nodes that shrink, vanish and come back as others, while Bindings are on their way."""

import asyncio

import pytest
from aiohttp import web

from aliquot.errors import AliquotError, NoRoom, Refused
from aliquot.kube import PODS
from aliquot.ledger import State
from aliquot.model import NodeGpus
from tests.factories import make_cards, make_gpu, pod_manifest
from tests.fakes import Fault, Next, answer, cut_after, cut_before, held, late
from tests.integration.control.test_audit import audit_of
from tests.integration.room import Room


async def test_a_pod_made_again_under_its_name_does_not_get_the_first_one_s_part(room: Room) -> None:
    """The first one's Binding has no answer, and it is gone before that comes."""
    await room.add_node()
    first = await room.add_pod("p", 4)
    room.api.script("POST", "/binding$", cut_before)
    with pytest.raises(AliquotError):
        await room.commit(first, "n1")
    await room.delete_pod(first)
    second = await room.add_pod("p", 5)
    assert second.metadata.uid != first.metadata.uid
    await room.commit(second, "n1")
    assert room.used() == {0: 5}
    await room.clock.move(71)
    await room.plane.transactions.settle()
    assert room.used() == {0: 5}


async def test_a_binding_for_the_first_pod_of_a_name_does_not_bind_the_second(room: Room) -> None:
    await room.add_node()
    first = await room.add_pod("p", 4)
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("POST", "/binding$", held(arrived, release))
    commit = asyncio.create_task(room.commit(first, "n1"))
    await arrived.wait()
    await room.delete_pod(first)
    second = await room.add_pod("p", 5)
    release.set()
    with pytest.raises(Refused):
        await commit
    assert "nodeName" not in room.api_pod(second)["spec"]
    assert room.used() == {}


async def test_a_pod_made_again_while_nobody_watched_is_another_one(room: Room) -> None:
    await room.add_node()
    first = await room.add_pod("p", 4)
    await room.commit(first, "n1")
    room.api.cut_watches("pods")
    await room.client.delete(PODS, "p", "default", grace=0)
    await room.client.create(PODS, pod_manifest("p", 5), "default")
    await room.clock.move(20)
    await room.in_sync()
    assert room.used() == {}


async def test_what_the_cluster_has_shown_bound_is_not_given_back_by_a_refused_binding(room: Room) -> None:
    """Another server bound the pod, here, while our Binding was on its way to being refused."""
    await room.add_node()
    pod = await room.add_pod("p", 4)
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("POST", "/binding$", _then_refused(arrived, release))
    commit = asyncio.create_task(room.commit(pod, "n1"))
    await arrived.wait()
    await room.committer().commit(pod, "n1")
    await room.in_sync()
    release.set()
    with pytest.raises(AliquotError):
        await commit
    assert room.used() == {0: 4}
    assert room.entries()[pod.metadata.uid].state is State.BOUND
    assert await audit_of(room).look() == []


def _then_refused(arrived: asyncio.Event, release: asyncio.Event) -> Fault:
    wait, refuse = held(arrived, release), answer(403)

    async def wait_and_refuse(request: web.Request, go_on: Next) -> web.StreamResponse:
        return await wait(request, lambda request: refuse(request, go_on))

    return wait_and_refuse


async def test_a_card_that_shrinks_below_what_is_sold_is_full_and_keeps_its_pods(room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    pod = await room.add_pod("p", 10)
    await room.commit(pod, "n1")
    await room.change_node(make_cards(mib=(8192,)))
    assert room.plane.cluster.ledger.oversold("n1") == ["GPU-n1-0"]
    with pytest.raises(NoRoom):
        await room.commit(await room.add_pod("q", 1), "n1")
    assert await audit_of(room).look() == []
    await room.delete_pod(pod)
    await room.commit(await room.add_pod("r", 8), "n1")
    assert room.used() == {0: 8}


async def test_a_node_that_comes_back_with_other_cards_sells_those_and_what_was_held_of_the_old_stays(
    room: Room,
) -> None:
    await room.add_node()
    pod = await room.add_pod("p", 10)
    await room.commit(pod, "n1")
    await room.remove_node("n1")
    await room.add_node(NodeGpus("n1", (make_gpu(uuid="GPU-new"),), 1024))
    await room.commit(await room.add_pod("q", 15), "n1")
    held_of = {uuid: charge.mib for uuid, charge in room.plane.cluster.ledger.used("n1").items()}
    assert held_of == {"GPU-n1-0": 10240, "GPU-new": 15360}
    assert await audit_of(room).look() == []


async def test_a_binding_made_while_its_node_was_away_counts_when_the_node_is_back(room: Room) -> None:
    cards = await room.add_node()
    pod = await room.add_pod("p", 10)
    done, deliver = asyncio.Event(), asyncio.Event()
    room.api.script("POST", "/binding$", late(done, deliver))
    commit = asyncio.create_task(room.commit(pod, "n1"))
    await done.wait()
    await room.remove_node("n1")
    deliver.set()
    await commit
    await room.add_node(cards)
    assert room.used() == {0: 10}
    assert await audit_of(room).look() == []


async def test_a_card_that_goes_unhealthy_under_a_claim_keeps_it_and_takes_no_other(room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    pod = await room.add_pod("p", 10)
    room.api.script("POST", "/binding$", cut_after)
    with pytest.raises(AliquotError):
        await room.commit(pod, "n1")
    await room.change_node(make_cards(mib=(15360,), unhealthy=[0]))
    assert room.used() == {0: 10}
    with pytest.raises(NoRoom):
        await room.commit(await room.add_pod("q", 1), "n1")
    await room.change_node(make_cards(mib=(15360,)))
    await room.commit(await room.add_pod("r", 5), "n1")
    assert room.used() == {0: 15}


async def test_a_pod_bound_by_somebody_else_to_another_node_frees_what_we_claimed_for_it(room: Room) -> None:
    await room.add_node()
    await room.add_node(make_cards("n2"))
    pod = await room.add_pod("p", 10)
    room.api.script("POST", "/binding$", cut_before)
    with pytest.raises(AliquotError):
        await room.commit(pod, "n1")
    assert room.used("n1") == {0: 10}
    await room.committer().commit(pod, "n2")
    await room.in_sync()
    assert (room.used("n1"), room.used("n2")) == ({}, {0: 10})
    assert await audit_of(room).look() == []
