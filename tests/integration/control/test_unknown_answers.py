"""A Binding without an answer: nobody else gets the part until the cluster has shown what became of it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aliquot.embedded.api import resources
from aliquot.errors import NoRoom, Refused
from aliquot.kube import Access, ApiError, Client, NoAnswer
from aliquot.kube.errors import Unreadable
from aliquot.ledger import State
from aliquot.model import Placement, Pod, Slice
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import make_cards
from tests.fakes import SECONDS, FakeClock, Fault, answer, body, cut_after, cut_before, held, late
from tests.integration.room import Commits, Room

BINDING = "/binding$"
ACT_LIMIT = 70.0

NOT_MADE = [
    pytest.param(cut_before, id="the connection is cut"),
    pytest.param(answer(500, message="etcd"), id="the server answers 500"),
    pytest.param(answer(503, message="gateway"), id="a gateway answers 503"),
    pytest.param(answer(504, message="gateway"), id="a gateway answers 504"),
]


async def bind_without_answer(room: Room, fault: Fault, **pod: object) -> str:
    """Returns the UID of a pod whose Binding got no answer."""
    made = await room.add_pod("p", 10, **pod)
    room.api.script("POST", BINDING, fault)
    with pytest.raises(NoAnswer):
        await room.commit(made, "n1")
    return made.metadata.uid


async def a_fate_that_is_due(room: Room) -> tuple[Pod, Commits]:
    """A pod whose Binding was never made, and a committer of its own that asks at the next `settle`."""
    await room.add_node()
    pod = await room.add_pod()
    clock = FakeClock()
    committer = room.committer(clock=clock)
    room.api.script("POST", BINDING, cut_before)
    with pytest.raises(NoAnswer):
        await committer.commit(pod, "n1")
    await clock.move(ACT_LIMIT)
    return pod, committer


@pytest.mark.parametrize("fault", NOT_MADE)
async def test_the_part_of_a_binding_that_was_not_made_is_held_for_70_seconds_and_then_given_back(
    room: Room, fault: Fault
) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    uid = await bind_without_answer(room, fault)
    other = await room.add_pod("q", 10)

    await room.clock.move(ACT_LIMIT - 1)
    await room.plane.transactions.settle()
    assert room.entries()[uid].state is State.CLAIMED
    with pytest.raises(NoRoom):
        await room.commit(other, "n1")

    await room.clock.move(1)
    await room.plane.transactions.settle()
    assert room.used() == {}
    await room.commit(other, "n1")


async def test_after_70_seconds_the_api_server_itself_is_asked_once(room: Room) -> None:
    await room.add_node()
    await bind_without_answer(room, cut_before)
    asked = len(room.api.seen)
    for _ in range(3):
        await room.clock.move(ACT_LIMIT)
        await room.plane.transactions.settle()
    reads = [seen.path for seen in room.api.seen[asked:] if seen.path.endswith("/pods/p")]
    assert reads == ["/api/v1/namespaces/default/pods/p"]


async def test_a_binding_that_was_made_settles_when_the_watch_shows_it(room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    uid = await bind_without_answer(room, cut_after)
    await room.in_sync()
    assert room.entries()[uid].state is State.BOUND
    await room.clock.move(ACT_LIMIT * 2)
    await room.plane.transactions.settle()
    assert room.used() == {0: 10}


async def test_asking_again_after_a_binding_that_was_made_finds_it(room: Room) -> None:
    await room.add_node()
    made = await room.add_pod()
    room.api.script("POST", BINDING, cut_after)
    with pytest.raises(NoAnswer):
        await room.commit(made, "n1")
    assert (await room.commit(made, "n1")).already
    assert room.used() == {0: 3}


async def test_asking_again_after_a_binding_that_was_not_made_makes_it_with_the_same_part(room: Room) -> None:
    await room.add_node()
    made = await room.add_pod()
    room.api.script("POST", BINDING, cut_before)
    with pytest.raises(NoAnswer):
        await room.commit(made, "n1")
    assert not (await room.commit(made, "n1")).already
    first, second = (seen.body["metadata"]["annotations"]["aliquot.io/placement"] for seen in room.api.bindings())
    assert first == second
    assert room.used() == {0: 3}


async def test_a_second_node_holds_a_second_claim_until_the_pod_is_seen(room: Room) -> None:
    await room.add_node(make_cards("n1"))
    await room.add_node(make_cards("n2"))
    made = await room.add_pod()
    room.api.script("POST", BINDING, cut_before, cut_before)
    for node in ("n1", "n2"):
        with pytest.raises(NoAnswer):
            await room.commit(made, node)
    assert (room.used("n1"), room.used("n2")) == ({0: 3}, {0: 3})
    await room.commit(made, "n2")
    await room.in_sync()
    assert (room.used("n1"), room.used("n2")) == ({}, {0: 3})


async def test_a_second_node_s_claim_falls_when_the_first_binding_turns_out_to_be_made(room: Room) -> None:
    await room.add_node(make_cards("n1"))
    await room.add_node(make_cards("n2"))
    made = await room.add_pod()
    room.api.script("POST", BINDING, cut_after)
    with pytest.raises(NoAnswer):
        await room.commit(made, "n1")
    with pytest.raises(Exception, match="already assigned"):
        await room.commit(made, "n2")
    await room.in_sync()
    assert (room.used("n1"), room.used("n2")) == ({0: 3}, {})


async def test_the_claim_of_a_pod_that_is_deleted_is_given_back_at_once(room: Room) -> None:
    await room.add_node()
    await bind_without_answer(room, cut_before)
    pod = room.plane.pods.get("default/p")
    assert pod is not None
    await room.delete_pod(pod)
    assert room.used() == {}


async def test_a_quorum_read_that_fails_keeps_the_claim(room: Room) -> None:
    pod, committer = await a_fate_that_is_due(room)
    room.api.script("GET", "/pods/p$", answer(403, message="no"), answer(500, message="no"))
    for _ in range(2):
        await committer.settle()
        assert room.entries()[pod.metadata.uid].state is State.CLAIMED
    await committer.settle()
    assert room.used() == {}


async def test_a_claim_is_not_given_back_under_a_binding_that_is_being_sent_again(room: Room) -> None:
    """The quorum read of the first and the second Binding must not cross."""
    await room.add_node(make_cards(mib=(15360,)))
    uid = await bind_without_answer(room, cut_before)
    pod = room.plane.pods.get("default/p")
    assert pod is not None
    await room.clock.move(ACT_LIMIT - 1)
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("POST", BINDING, held(arrived, release))
    again = asyncio.create_task(room.commit(pod, "n1"))
    await arrived.wait()
    await room.clock.move(1)
    settling = asyncio.create_task(room.plane.transactions.settle())
    for _ in range(20):
        await asyncio.sleep(0)
    assert uid in room.entries()
    release.set()
    assert not (await again).already
    await settling
    await room.in_sync()
    assert room.used() == {0: 10}


async def test_a_fate_that_becomes_known_while_another_is_asked_for_is_settled(room: Room) -> None:
    await room.add_node()
    pods = [await room.add_pod(name) for name in ("p", "q")]
    room.api.script("POST", BINDING, cut_before, cut_before)
    for pod in pods:
        with pytest.raises(NoAnswer):
            await room.commit(pod, "n1")
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("GET", "/pods/p$", held(arrived, release))
    await room.clock.move(ACT_LIMIT)
    settling = asyncio.create_task(room.plane.transactions.settle())
    await arrived.wait()
    await room.commit(pods[1], "n1")
    release.set()
    await settling
    assert room.plane.transactions.unknown == 0
    assert room.used() == {0: 3}


async def test_a_claim_outlives_its_node_s_object(room: Room) -> None:
    """A node that is made anew, as kubelet does, must not sell a part whose Binding may still be made."""
    cards = await room.add_node(make_cards(mib=(15360,)))
    uid = await bind_without_answer(room, cut_before)
    await room.remove_node("n1")
    await room.plane.transactions.settle()
    await room.add_node(cards)
    assert room.entries()[uid].state is State.CLAIMED
    other = await room.add_pod("q", 10)
    with pytest.raises(NoRoom):
        await room.commit(other, "n1")


async def test_asking_again_when_the_chosen_card_is_gone_is_refused_in_words(room: Room) -> None:
    await room.add_node(make_cards(mib=(10240, 15360)))
    await bind_without_answer(room, cut_before)
    await room.change_node(make_cards(mib=()))
    pod = room.plane.pods.get("default/p")
    assert pod is not None
    with pytest.raises(
        Refused, match="did not answer an earlier Binding of this pod to n1, and its cards are no longer free"
    ):
        await room.commit(pod, "n1")


async def test_a_part_that_was_sold_to_another_meanwhile_is_not_bound_again(room: Room) -> None:
    """By another server while we did not lead, or by an original: the cluster shows it, and the claim gives way."""
    await room.add_node(make_cards(mib=(15360, 15360)))
    uid = await bind_without_answer(room, cut_before)
    (card,) = room.entries()[uid].charges
    (gpu,) = (gpu for gpu in room.plane.cluster.cards("n1").gpus if gpu.uuid == card)
    record = write_placement(Placement("n1", "gpushare", {"main": (Slice(card, gpu.index, gpu.minor, 0, 15360),)}))
    await room.add_pod("other", 15, node="n1", metadata={"annotations": {PLACEMENT: record}})
    pod = room.plane.pods.get("default/p")
    assert pod is not None
    with pytest.raises(Refused, match="its cards are no longer free"):
        await room.commit(pod, "n1")
    await room.clock.move(ACT_LIMIT)
    await room.plane.transactions.settle()
    assert not (await room.commit(pod, "n1")).already
    assert card not in room.entries()[pod.metadata.uid].charges, "on the other card"


async def test_a_card_that_has_died_meanwhile_is_not_bound_again(room: Room) -> None:
    cards = make_cards(mib=(15360, 15360))
    await room.add_node(cards)
    uid = await bind_without_answer(room, cut_before)
    (card,) = room.entries()[uid].charges
    dead = [gpu.index for gpu in cards.gpus if gpu.uuid == card]
    await room.change_node(make_cards(mib=(15360, 15360), unhealthy=dead))
    pod = room.plane.pods.get("default/p")
    assert pod is not None
    with pytest.raises(Refused, match="its cards are no longer free"):
        await room.commit(pod, "n1")


# -- what happens while we ask


async def test_a_pod_that_goes_while_a_refusal_is_looked_into_stays_gone(room: Room) -> None:
    """The fresh read says "bound here", but it is older than the end of the pod that the watch has shown."""
    await room.add_node()
    pod = await room.add_pod()
    await room.commit(pod, "n1")
    done, deliver = asyncio.Event(), asyncio.Event()
    room.api.script("GET", "/pods/p$", late(done, deliver))
    again = asyncio.create_task(room.commit(pod, "n1"))
    await done.wait()
    await room.delete_pod(pod)
    assert room.used() == {}
    deliver.set()
    with pytest.raises(Refused, match="already assigned"):
        await again
    assert room.used() == {}


async def test_a_pod_that_goes_while_the_fate_of_its_binding_is_asked_for_stays_gone(room: Room) -> None:
    """The Binding was made late, and the pod deleted, both seen while the answer was on its way."""
    pod, committer = await a_fate_that_is_due(room)
    done, deliver = asyncio.Event(), asyncio.Event()
    room.api.script("GET", "/pods/p$", late(done, deliver))
    room.api.registry.rewrite(resources.PODS, "default", "p", _bound_as(room.api.bindings()[0].body))
    settling = asyncio.create_task(committer.settle())
    await done.wait()
    await room.in_sync()
    await room.delete_pod(pod)
    assert room.used() == {}
    deliver.set()
    await settling
    assert room.used() == {}


def _bound_as(binding: Any) -> Callable[[Any], Any]:
    def change(pod: Any) -> Any:
        metadata = pod["metadata"] | {"annotations": binding["metadata"]["annotations"]}
        return pod | {"metadata": metadata, "spec": pod["spec"] | {"nodeName": binding["target"]["name"]}}

    return change


class BrokenClient(Client):
    """Binds nothing, and raises what it is told to."""

    def __init__(self, access: Access, error: type[BaseException]) -> None:
        super().__init__(access)
        self._error = error

    async def bind(self, binding: Mapping[str, Any], *, timeout: float, dry_run: bool = False) -> None:
        raise self._error(f"no {binding['kind']} within {timeout} s, {dry_run=}")


@pytest.mark.parametrize("error", [RuntimeError, ValueError, Unreadable, asyncio.CancelledError])
async def test_whatever_a_binding_ends_with_its_claim_is_kept_and_looked_after(
    room: Room, error: type[BaseException]
) -> None:
    await room.add_node()
    pod = await room.add_pod()
    clock = FakeClock()
    async with BrokenClient(Access(room.api.url), error) as client:
        committer = room.committer(client, clock)
        with pytest.raises(error):
            await committer.commit(pod, "n1")
        assert room.entries()[pod.metadata.uid].state is State.CLAIMED
        await clock.move(ACT_LIMIT - 1)
        await committer.settle()
        assert room.used() == {0: 3}
        await clock.move(1)
        await committer.settle()
        assert room.used() == {}


LOOKS: list[Any] = [
    pytest.param(answer(500, message="etcd"), NoAnswer, id="the server fails"),
    pytest.param(answer(403, message="not you"), ApiError, id="it is forbidden"),
    pytest.param(body(b"{"), Unreadable, id="the answer cannot be read"),
]


@pytest.mark.parametrize(("fault", "error"), LOOKS)
async def test_a_conflict_that_cannot_be_looked_into_keeps_the_claim_until_the_api_server_says_not_bound(
    room: Room, fault: Fault, error: type[Exception]
) -> None:
    await room.add_node()
    pod = await room.add_pod()
    room.api.script("POST", BINDING, answer(409, message="busy"))
    room.api.script("GET", "/pods/p$", fault)
    with pytest.raises(error):
        await room.commit(pod, "n1")
    assert room.entries()[pod.metadata.uid].state is State.CLAIMED
    await room.clock.move(ACT_LIMIT)
    await room.plane.transactions.settle()
    assert room.used() == {}


async def test_a_look_takes_no_longer_than_it_may(room: Room) -> None:
    """The scheduler waits for our answer, and would take its absence for a failure of ours."""
    await room.add_node()
    pod = await room.add_pod()
    committer = room.committer(commit__look=0.05)
    room.api.script("POST", BINDING, answer(409, message="busy"))
    room.api.script("GET", "/pods/p$", held(asyncio.Event(), asyncio.Event()))
    async with asyncio.timeout(SECONDS / 2):
        with pytest.raises(NoAnswer):
            await committer.commit(pod, "n1")
    assert room.used() == {0: 3}


async def test_a_binding_takes_no_longer_than_it_may(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    committer = room.committer(commit__budget=0.05)
    room.api.script("POST", BINDING, held(asyncio.Event(), asyncio.Event()))
    async with asyncio.timeout(SECONDS / 2):
        with pytest.raises(NoAnswer):
            await committer.commit(pod, "n1")
    assert room.used() == {0: 3}
