"""Agents that fall silent are noticed, by our own clock."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from itertools import count

import pytest

from aliquot.agent.heartbeat import Heartbeat
from aliquot.control.inputs.agent_heartbeats import AgentHeartbeats
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import NodeSeen
from aliquot.embedded.api import resources
from aliquot.kube import LEASES, Client
from aliquot.model.load import LOAD, CardLoad, NodeLoad, PodLoad, write_load
from tests.factories import make_cards, make_node
from tests.fakes import FakeClock, ScriptedApi, answer, until

NAMESPACE = "aliquot-nodes"
_seconds = count(1)
"""No two beats say the same time."""
pytestmark = pytest.mark.embedded_only("time is moved by hand")


@pytest.fixture
async def heard(scripted: ScriptedApi, client: Client, clock: FakeClock) -> AsyncIterator[AgentHeartbeats]:
    scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
    cluster = ClusterState()
    cluster.apply(NodeSeen(make_node("n1", make_cards())))
    heartbeats = AgentHeartbeats(client, clock, cluster)
    task = asyncio.create_task(heartbeats.leases.run())
    await heartbeats.leases.synced.wait()
    yield heartbeats
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def beat(heard: AgentHeartbeats, client: Client, node: str) -> None:
    """A beat whose time nobody believes, seen by the informer."""
    clock = FakeClock()
    await clock.move(next(_seconds))
    await Heartbeat(client, node, clock).beat()
    written = await client.get(LEASES, node, NAMESPACE)
    await until(lambda: heard.leases.get(f"{NAMESPACE}/{node}") == written, "the beat is heard")


async def test_an_agent_that_has_just_spoken_is_not_silent(heard: AgentHeartbeats, client: Client) -> None:
    await beat(heard, client, "n1")
    assert (list(heard.silent()), heard.notes()) == ([], [])


async def test_agents_that_say_nothing_for_two_periods_are_named(
    heard: AgentHeartbeats, client: Client, clock: FakeClock
) -> None:
    for node in ("n1", "n2"):
        await beat(heard, client, node)
    await clock.move(41)
    assert heard.notes() == ["the agents of these nodes are silent: n1, n2"]
    await client.patch(LEASES, "n1", {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}, namespace=NAMESPACE)
    await until(lambda: list(heard.silent()) == ["n2"], "n1 has spoken again")


async def test_many_silent_agents_are_counted(heard: AgentHeartbeats, client: Client, clock: FakeClock) -> None:
    for number in range(7):
        await beat(heard, client, f"n{number}")
    await clock.move(41)
    assert heard.notes() == ["the agents of these nodes are silent: n0, n1, n2, n3, n4 and 2 more"]


async def test_a_node_whose_lease_is_deleted_is_forgotten(
    heard: AgentHeartbeats, client: Client, clock: FakeClock
) -> None:
    await beat(heard, client, "n1")
    await clock.move(41)
    await client.delete(LEASES, "n1", NAMESPACE)
    await until(lambda: list(heard.silent()) == [], "it is forgotten")


async def test_an_agent_goes_on_beating_after_a_failure(
    scripted: ScriptedApi, heard: AgentHeartbeats, client: Client, clock: FakeClock
) -> None:
    scripted.script("PATCH", "/leases/", answer(500, message="oops"))
    task = asyncio.create_task(Heartbeat(client, "n1", clock).run())
    await until(lambda: heard.leases.all() != [], passing=clock, between_calls_of=scripted)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


# -- load


def load(at: float, *busy: float, pods: tuple[str, ...] = ()) -> str:
    cards = {f"GPU-n1-{index}": CardLoad(cores) for index, cores in enumerate(busy)}
    return write_load(NodeLoad(at, cards, {uid: {"GPU-n1-0": PodLoad(1)} for uid in pods}))


async def report(heard: AgentHeartbeats, client: Client, text: str, node: str = "n1") -> None:
    change = {"metadata": {"annotations": {LOAD: text}}}
    written = await client.patch(LEASES, node, change, namespace=NAMESPACE)
    await until(lambda: heard.leases.get(f"{NAMESPACE}/{node}") == written, "the load is heard")


def shown(heard: AgentHeartbeats) -> list[tuple[float, float]]:
    """The load of each card, and when it was measured, as policies see it."""
    block = heard.cluster.fleet.blocks[0]
    return [*zip(block.load[:2, 0].tolist(), block.load_at[:2, 0].tolist(), strict=True)]


async def test_load_counts_from_when_we_saw_it_whatever_the_node_s_clock_says(
    heard: AgentHeartbeats, client: Client, clock: FakeClock
) -> None:
    await beat(heard, client, "n1")
    await clock.move(7)
    await report(heard, client, load(1e10, 0.25, 0.5, pods=("u",)))
    assert shown(heard) == [(0.25, 1007.0), (0.5, 1007.0)]
    assert heard.cluster.fleet.blocks[0].measured("n1") == {"u"}
    assert heard.cluster.totals.now == 1007.0


async def test_an_agent_speaks_for_the_cards_of_its_own_node_only(heard: AgentHeartbeats, client: Client) -> None:
    heard.cluster.apply(NodeSeen(make_node("n2", make_cards("n2"))))
    for node, busy in (("n1", 0.25), ("n2", 0.75)):
        await beat(heard, client, node)
        await report(heard, client, load(1.0, busy), node)
    await report(heard, client, write_load(NodeLoad(2.0)), "n2")

    history = heard.history.card("GPU-n1-0")
    assert history is not None
    assert [past.cores for past in history.samples] == [0.25]


async def test_a_sample_that_does_not_change_grows_old(
    heard: AgentHeartbeats, client: Client, clock: FakeClock
) -> None:
    await beat(heard, client, "n1")
    await report(heard, client, load(5, 0.25, 0.5))
    await clock.move(20)
    await beat(heard, client, "n1")
    assert (list(heard.silent()), shown(heard)[0]) == ([], (0.25, 1000.0))


async def test_what_the_first_list_shows_may_be_old_and_counts_after_its_next_change(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
    await Heartbeat(client, "n1", clock).beat()
    await client.patch(LEASES, "n1", {"metadata": {"annotations": {LOAD: load(5, 0.25)}}}, namespace=NAMESPACE)
    late = AgentHeartbeats(client, clock, ClusterState())
    task = asyncio.create_task(late.leases.run())
    await late.leases.synced.wait()
    assert late.samples == {}
    await report(late, client, load(6, 0.5))
    assert late.samples["n1"].load.cards["GPU-n1-0"].cores == 0.5
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "text", ["{", load(5, 0.5).replace('"v":1', '"v":2'), load(5, 0.5).replace("0.5", "7"), "x" * 70000]
)
async def test_a_load_that_cannot_be_read_is_named_and_is_no_load(
    heard: AgentHeartbeats, client: Client, text: str
) -> None:
    await beat(heard, client, "n1")
    await report(heard, client, load(1, 0.25))
    await report(heard, client, text)
    assert heard.notes() == ["the load of these nodes cannot be read: n1"]
    assert math.isnan(shown(heard)[0][0])
    await report(heard, client, load(2, 0.25))
    assert (heard.notes(), shown(heard)[0][0]) == ([], 0.25)


async def test_load_goes_with_its_lease(heard: AgentHeartbeats, client: Client) -> None:
    await beat(heard, client, "n1")
    await report(heard, client, load(1, 0.25))
    await client.delete(LEASES, "n1", NAMESPACE)
    await until(lambda: heard.samples == {}, "it is forgotten")
    assert math.isnan(shown(heard)[0][0])


async def test_a_lease_that_asks_for_more_than_two_periods_does_not_get_them(
    heard: AgentHeartbeats, client: Client, clock: FakeClock
) -> None:
    await beat(heard, client, "n1")
    await client.patch(LEASES, "n1", {"spec": {"leaseDurationSeconds": 9000}}, namespace=NAMESPACE)
    await beat(heard, client, "n1")
    await clock.move(41)
    assert list(heard.silent()) == ["n1"]
    assert (heard.silence("n1"), heard.silence("n2")) == (41.0, None)


async def test_time_passes_for_the_cluster_state_while_load_is_known(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
    heard = AgentHeartbeats(client, clock, ClusterState())
    task = asyncio.create_task(heard.run())
    await heard.leases.synced.wait()
    await until(lambda: clock.sleeping, "it waits for the next tick")
    await clock.move(20)
    assert heard.cluster.totals.now == 0.0
    await beat(heard, client, "n1")
    await report(heard, client, load(1, 0.25))
    await clock.move(20)
    assert heard.cluster.totals.now == clock.monotonic()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
