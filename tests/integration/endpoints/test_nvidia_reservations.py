"""The nvidia endpoint's filter returns one node and reserves the cards there until kube-scheduler has bound the pod."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.dialects.node_reading import SERVES
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.endpoints.nvidia import NvidiaEndpoint
from aliquot.kube import Access, Client
from aliquot.model import NodeGpus, Pod
from aliquot.model.records import INVENTORY, OBSERVED, write_inventory, write_observed
from tests.factories import make_gpu
from tests.fakes import FakeClock, ScriptedApi, answer, until
from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.endpoints.test_nvidia import FILTER, GPU, PREEMPT, preempting, wanting
from tests.integration.endpoints.test_reservations import bind_as_others, cards_of, placed_late
from tests.integration.endpoints.wire import cards_of_models, names_call, opened, pod_asking
from tests.integration.room import Room

T4, A100 = "Tesla T4", "NVIDIA A100-SXM4-40GB"
FULL = "not enough room on the node's GPUs now"
HOLD, PATIENCE = 30.0, 30.0
"""`late.hold` and `late.seconds`."""


@pytest.fixture
async def nvidia(room: Room) -> AsyncIterator[Endpoint]:
    await fill(room)
    async with opened(room, NvidiaEndpoint(room.plane).routes()) as endpoint:
        yield endpoint


async def fill(room: Room) -> None:
    """One T4 and an A100; two T4."""
    for node, *models in (("mixed", T4, A100), ("t4", T4, T4)):
        cards = cards_of_models(node, *models)
        annotations = {INVENTORY: write_inventory(cards)}
        metadata = {"name": node, "labels": {f"{SERVES}nvidia": "true"}, "annotations": annotations}
        await room.add_node(cards, metadata=metadata, capacity={GPU: "2"})


NODES = ["mixed", "t4"]


async def offered(endpoint: Endpoint, pod: Pod, nodes: Sequence[str] = NODES) -> str:
    """The node that a filter leaves; "" without one."""
    answer = (await endpoint.post(FILTER, names_call(dict(endpoint.room.api_pod(pod)), nodes))).json
    assert answer["Error"] == ""
    assert len(answer["NodeNames"]) <= 1
    assert answer["FailedNodes"].keys() == {*nodes} - {*answer["NodeNames"]}
    return "".join(answer["NodeNames"])


async def waiting(endpoint: Endpoint, name: str, count: int = 1, model: str = T4, **fields: Any) -> Pod:
    created = await endpoint.room.put_pod(wanting(count, model, name=name, metadata={"uid": ""}, **fields))
    return msgspec.convert(created, Pod)


def reserved(room: Room, pod: Pod) -> set[str]:
    return set(room.plane.cluster.ledger.nodes_of(pod.metadata.uid))


def is_lost(room: Room, pod: Pod) -> bool:
    return bool(room.api_pod(pod)["status"].get("reason") == "AliquotNoRoom")


async def time_passes(room: Room, seconds: float) -> None:
    await room.clock.move(seconds)
    await until(
        lambda: not room.plane.out_of_sync(),
        "the API server answered meanwhile",
        passing=room.clock,
        between_calls_of=room.api,
    )
    await room.in_sync()


# -- the race


async def test_every_pod_gets_a_card_of_its_own_and_the_one_too_many_waits_with_the_reason(nvidia: Endpoint) -> None:
    """kube-scheduler filters the next pod before anybody can see where it bound this one."""
    pods = [await waiting(nvidia, f"p{number}") for number in range(4)]
    nodes = [await offered(nvidia, pod) for pod in pods]
    assert sorted(nodes) == ["", "mixed", "t4", "t4"]
    assert nodes[3] == "", "the last one"
    answer = (await nvidia.post(FILTER, names_call(dict(nvidia.room.api_pod(pods[3])), NODES))).json
    assert answer["FailedNodes"] == dict.fromkeys(NODES, FULL)
    cards = []
    for pod, node in zip(pods[:3], nodes, strict=False):
        await bind_as_others(nvidia.room, pod, node)
        cards += cards_of(await placed_late(nvidia.room, pod))
    assert sorted(cards) == ["GPU-mixed-0", "GPU-t4-0", "GPU-t4-1"]
    await nvidia.room.delete_pod(pods[1])
    assert await offered(nvidia, pods[3]) == nodes[1]


async def test_calls_at_once_for_pods_that_our_cache_does_not_have_get_different_cards(nvidia: Endpoint) -> None:
    """Two schedulers are ahead of our watch, so each call asks the API server for its pod first."""
    async with nvidia.room.late_informer():
        created = [
            nvidia.room.api.registry.create(resources.PODS, "default", wanting(1, T4, name=name)).obj
            for name in ("a", "b", "c", "d")
        ]
        replies = await asyncio.gather(*(nvidia.post(FILTER, names_call(pod, NODES)) for pod in created))
    assert [reply.json["Error"] for reply in replies] == [""] * 4
    assert sorted("".join(reply.json["NodeNames"]) for reply in replies) == ["", "mixed", "t4", "t4"]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_pod_without_a_model_reserves_cards_of_any_model(nvidia: Endpoint, count: int) -> None:
    first, second = [await waiting(nvidia, name, count, model="") for name in ("a", "b")]
    nodes = [await offered(nvidia, first), await offered(nvidia, second)]
    assert nodes == (["mixed", "mixed"] if count == 1 else ["mixed", "t4"])
    assert await offered(nvidia, await waiting(nvidia, "c", model=A100)) == "", "the only A100 is somebody's"


async def test_a_pod_that_asks_for_no_card_gets_every_node_and_reserves_nothing(nvidia: Endpoint) -> None:
    pod = await nvidia.room.put_pod(pod_asking({}, annotations={"nvidia.com/gpu.model": T4}))
    assert (await nvidia.post(FILTER, names_call(pod, [*NODES, "cpu"]))).json["NodeNames"] == [*NODES, "cpu"]
    assert reserved(nvidia.room, msgspec.convert(pod, Pod)) == set()


# -- the same pod again


async def test_a_pod_that_is_filtered_again_has_one_reservation(nvidia: Endpoint) -> None:
    pod = await waiting(nvidia, "p")
    for nodes, node in ((NODES, "t4"), (NODES, "t4"), (["mixed"], "mixed"), (NODES, "t4")):
        assert await offered(nvidia, pod, nodes) == node
        assert reserved(nvidia.room, pod) == {node}


async def test_a_pod_that_no_longer_passes_gives_its_reservation_back(nvidia: Endpoint) -> None:
    pod = await waiting(nvidia, "p", 2)
    assert await offered(nvidia, pod) == "t4"
    assert await offered(nvidia, pod, ["mixed"]) == ""
    assert reserved(nvidia.room, pod) == set()


# -- bound elsewhere, late or by another server


async def test_a_pod_that_is_bound_elsewhere_gets_a_card_there_and_leaves_its_reservation(nvidia: Endpoint) -> None:
    pod = await waiting(nvidia, "p", 1)
    assert await offered(nvidia, pod) == "t4"
    await bind_as_others(nvidia.room, pod, "mixed")
    assert cards_of(await placed_late(nvidia.room, pod)) == ["GPU-mixed-0"]
    assert reserved(nvidia.room, pod) == {"mixed"}
    assert await offered(nvidia, await waiting(nvidia, "q", 2)) == "t4"


async def test_a_pod_that_is_bound_after_its_reservation_fails_if_another_got_its_card(nvidia: Endpoint) -> None:
    slow, quick, other = [await waiting(nvidia, name, count) for name, count in (("a", 2), ("b", 1), ("c", 1))]
    assert await offered(nvidia, slow) == "t4"
    await time_passes(nvidia.room, HOLD + 1)
    assert reserved(nvidia.room, slow) == set()
    assert await offered(nvidia, quick) == "t4", "its cards are free again"
    await bind_as_others(nvidia.room, slow, "t4")
    await bind_as_others(nvidia.room, quick, "t4")
    await time_passes(nvidia.room, PATIENCE + 2)
    await nvidia.room.plane.late.look()
    await nvidia.room.in_sync()
    assert not is_lost(nvidia.room, quick), "it came in time"
    assert is_lost(nvidia.room, slow)
    assert await offered(nvidia, other, ["t4"]) == "t4", "it holds nothing"


async def test_a_reservation_that_expires_before_the_pod_is_placed_late_stays_the_pod_s_card(nvidia: Endpoint) -> None:
    """It is bound in time, but the placement cannot be written yet."""
    pod = await waiting(nvidia, "p", 2)
    assert await offered(nvidia, pod) == "t4"
    nvidia.room.api.script("PATCH", f"/pods/{pod.metadata.name}$", *[answer(503)] * 100)
    await bind_as_others(nvidia.room, pod, "t4")
    await time_passes(nvidia.room, HOLD + 1)
    assert cards_of(_now(nvidia.room, pod)) == []
    assert await offered(nvidia, await waiting(nvidia, "q", 2)) == ""
    assert await offered(nvidia, await waiting(nvidia, "r", 1)) == "mixed"


async def test_a_new_leader_places_a_pod_that_its_predecessor_offered_a_node(nvidia: Endpoint) -> None:
    """The reservation ended with the old server. Whoever comes meanwhile counts on what the API server shows."""
    room = nvidia.room
    pod, other = await waiting(nvidia, "p"), await waiting(nvidia, "q", 2)
    assert await offered(nvidia, pod) == "t4"
    async with Room(room.api, room.client, FakeClock()) as successor:
        await bind_as_others(room, pod, "t4")
        await successor.in_sync()
        async with opened(successor, NvidiaEndpoint(successor.plane).routes()) as endpoint:
            assert await offered(endpoint, other) == "", "the bound pod counts before it has a placement"
        assert cards_of(await placed_late(successor, pod)) == ["GPU-t4-0"]


# -- observed nodes, and nodes without our agent


async def test_pods_on_an_observed_node_reserve_cards_until_kubelet_has_given_them_some(room: Room) -> None:
    gpus = tuple(make_gpu(index) for index in range(2))
    await room.add_node(NodeGpus("n1", gpus, 1024, observed=True), capacity={GPU: "2"})
    async with opened(room, NvidiaEndpoint(room.plane).routes()) as endpoint:
        first, second, third = [await waiting(endpoint, name) for name in ("a", "b", "c")]
        assert [await offered(endpoint, pod, ["n1"]) for pod in (first, second, third)] == ["n1", "n1", ""]
        await bind_as_others(room, second)
        await room.annotate(second, **{OBSERVED: write_observed(second.metadata.uid, {"main": ["GPU-n1-0"]})})
        assert await offered(endpoint, third, ["n1"]) == "", "the first one's reservation made way"
        assert await offered(endpoint, first, ["n1"]) == "n1"
        await bind_as_others(room, first)
        await time_passes(room, HOLD + 1)
        assert await offered(endpoint, third, ["n1"]) == ""
        await room.delete_pod(second)
        assert await offered(endpoint, third, ["n1"]) == "n1"


async def test_pods_on_a_node_without_our_agent_reserve_cards_by_number(room: Room) -> None:
    metadata = {"name": "plain", "labels": {"nvidia.com/gpu.product": "Tesla-T4"}}
    await room.add_plain_node("plain", {GPU: "2"}, metadata=metadata)
    async with opened(room, NvidiaEndpoint(room.plane).routes()) as endpoint:
        pods = [await waiting(endpoint, name) for name in ("a", "b", "c")]
        assert [await offered(endpoint, pod, ["plain"]) for pod in pods] == ["plain", "plain", ""]
        await bind_as_others(room, pods[0], "plain")
        await time_passes(room, HOLD + 1)
        assert await offered(endpoint, pods[2], ["plain"]) == "plain", "the second one never came"
        assert await offered(endpoint, pods[1], ["plain"]) == ""


# -- preemption


@dataclass(frozen=True)
class Preempting:
    endpoint: Endpoint
    victim: Pod
    preemptor: Pod

    def evict(self, grace: int) -> None:
        asked = DeleteRequest(grace_seconds=grace)
        self.endpoint.room.api.registry.delete(resources.PODS, "default", self.victim.metadata.name, asked)


@pytest.fixture
async def nominated(nvidia: Endpoint) -> Preempting:
    """The only A100 is held by a pod of lower priority, which was named as the victim of one that is nominated."""
    victim = await waiting(nvidia, "low", model=A100, priority=1)
    assert await offered(nvidia, victim) == "mixed"
    await bind_as_others(nvidia.room, victim, "mixed")
    await placed_late(nvidia.room, victim)
    preemptor = await waiting(nvidia, "high", model=A100, priority=100)
    assert await offered(nvidia, preemptor) == ""
    manifest = dict(nvidia.room.api_pod(preemptor))
    call = preempting(manifest, {"mixed": [victim.metadata.uid]}, whole=False)
    assert list((await nvidia.post(PREEMPT, call)).json["NodeNameToMetaVictims"]) == ["mixed"]
    await nvidia.room.report(preemptor, nominatedNodeName="mixed")
    return Preempting(nvidia, victim, preemptor)


async def test_the_nominated_node_is_refused_while_its_victim_runs(nominated: Preempting) -> None:
    """The scheduler binds by itself: nobody would wait for the victim afterwards."""
    nominated.evict(grace=30)
    await nominated.endpoint.room.in_sync()
    manifest = dict(nominated.endpoint.room.api_pod(nominated.preemptor))
    answer = (await nominated.endpoint.post(FILTER, names_call(manifest, ["mixed"]))).json
    assert (answer["NodeNames"], answer["FailedNodes"]) == ([], {"mixed": FULL})
    assert answer["FailedAndUnresolvableNodes"] is None, "it only has to wait"


async def test_the_filter_waits_until_our_cache_has_seen_the_victim_go(nominated: Preempting) -> None:
    room = nominated.endpoint.room
    async with room.late_informer() as release:
        nominated.evict(grace=0)
        filtering = asyncio.create_task(offered(nominated.endpoint, nominated.preemptor, ["mixed"]))
        read = f"/pods/{nominated.victim.metadata.name}"
        await until(lambda: any(seen.path.endswith(read) for seen in room.api.seen), "the victim is asked after")
        assert not filtering.done()
        release.set()
        assert await filtering == "mixed"
    assert reserved(room, nominated.preemptor) == {"mixed"}


async def test_a_filter_without_the_victim_s_end_refuses_and_takes_nobody_s_card(nominated: Preempting) -> None:
    room = nominated.endpoint.room
    async with room.late_informer():
        nominated.evict(grace=0)
        filtering = asyncio.create_task(offered(nominated.endpoint, nominated.preemptor, ["mixed"]))
        await until(filtering.done, "the filter gives up", passing=room.clock, between_calls_of=room.api)
        assert await filtering == ""
        assert reserved(room, nominated.preemptor) == set()


# -- any history


@dataclass
class History:
    """What kube-scheduler did, and what it was told."""

    endpoint: Endpoint
    pods: list[Pod] = field(default_factory=list)
    created: int = 0
    offers: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The node of the last offer, and when it was made."""
    in_time: set[str] = field(default_factory=set)
    """Pods that were bound to the node of their last offer while it held."""

    @property
    def room(self) -> Room:
        return self.endpoint.room

    def waiting(self) -> list[Pod]:
        return [pod for pod in self.pods if not self.room.api_pod(pod)["spec"].get("nodeName")]

    async def create(self, count: int, model: str) -> None:
        self.created += 1
        self.pods.append(await waiting(self.endpoint, f"p{self.created}", count, model))

    async def filter(self, pod: Pod, nodes: Sequence[str]) -> None:
        self.offers[pod.metadata.uid] = await offered(self.endpoint, pod, nodes), self.room.clock.monotonic()

    async def bind(self, pod: Pod, node: str) -> None:
        where, since = self.offers.get(pod.metadata.uid, ("", 0.0))
        if node == where and self.room.clock.monotonic() - since < HOLD:
            self.in_time.add(pod.metadata.uid)
        await bind_as_others(self.room, pod, node)

    async def delete(self, pod: Pod) -> None:
        self.pods.remove(pod)
        await self.room.delete_pod(pod)

    def check(self) -> None:
        cluster = self.room.plane.cluster
        assert [line for node in NODES for line in cluster.ledger.oversold(node)] == []
        cards = [card for pod in self.pods for card in cards_of(_now(self.room, pod)) if not is_lost(self.room, pod)]
        assert len(cards) == len(set(cards)), "two pods on one card"
        assert not [pod.key for pod in self.pods if pod.metadata.uid in self.in_time and is_lost(self.room, pod)]

    async def settle(self) -> None:
        """In the end every bound pod has a card or has failed, and those that were bound in time have one."""
        for _ in range(2):
            await self.room.plane.late.look()
            await time_passes(self.room, PATIENCE + 1)
            self.check()
        for pod in self.pods:
            has_card = bool(cards_of(_now(self.room, pod)))
            if pod.metadata.uid in self.in_time:
                assert has_card, f"{pod.key} went to the offered node in time"
            elif self.room.api_pod(pod)["spec"].get("nodeName"):
                assert has_card or is_lost(self.room, pod)


def _now(room: Room, pod: Pod) -> Pod:
    return msgspec.convert(room.api_pod(pod), Pod)


@asynccontextmanager
async def history() -> AsyncIterator[History]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ScriptedApi())
        client = await stack.enter_async_context(Client(Access(api.url)))
        room = await stack.enter_async_context(Room(api, client, FakeClock()))
        await fill(room)
        endpoint = await stack.enter_async_context(opened(room, NvidiaEndpoint(room.plane).routes()))
        yield History(endpoint)


STEPS = ["create", "create", "filter", "filter", "filter", "offered", "offered", "elsewhere", "delete", "place", "time"]
CHOICES = st.integers(0, 999)
"""Which of the pods, nodes and so on that there are at that moment."""


@settings(max_examples=25)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), CHOICES, CHOICES), min_size=8, max_size=30))
async def test_no_card_is_given_twice_and_no_pod_is_lost_that_went_where_it_was_sent_in_time(
    steps: list[tuple[str, int, int]],
) -> None:
    async with history() as told:
        for step, one, two in steps:
            waits = told.waiting()
            asked = [pod for pod in waits if told.offers.get(pod.metadata.uid, ("",))[0]]
            if step == "create" and len(told.pods) < 6:
                await told.create(_any(one, [1, 1, 1, 2]), _any(two, [T4, T4, A100, ""]))
            elif step == "filter" and waits:
                await told.filter(_any(one, waits), _any(two, [NODES, NODES, NODES[:1], NODES[1:]]))
            elif step == "offered" and asked:
                pod = _any(one, asked)
                await told.bind(pod, told.offers[pod.metadata.uid][0])
            elif step == "elsewhere" and waits:
                await told.bind(_any(one, waits), _any(two, NODES))
            elif step == "delete" and told.pods:
                await told.delete(_any(one, told.pods))
            elif step == "place":
                await told.room.plane.late.look()
                await told.room.in_sync()
            elif step == "time":
                await time_passes(told.room, _any(one, [1.0, 5.0, HOLD - 1, HOLD + 1]))
            told.check()
        await told.settle()


_Item = TypeVar("_Item")


def _any(number: int, items: Sequence[_Item]) -> _Item:
    return items[number % len(items)]
