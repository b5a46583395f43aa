"""Agents that fall silent are noticed, by our own clock."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import count

import pytest

from aliquot.agent.heartbeat import Heartbeat
from aliquot.control.inputs.agent_heartbeats import AgentHeartbeats
from aliquot.embedded.api import resources
from aliquot.kube import LEASES, Client
from tests.fakes import FakeClock, ScriptedApi, answer, until

NAMESPACE = "aliquot-nodes"
_seconds = count(1)
"""No two beats say the same time."""
pytestmark = pytest.mark.embedded_only("time is moved by hand")


@pytest.fixture
async def heard(scripted: ScriptedApi, client: Client, clock: FakeClock) -> AsyncIterator[AgentHeartbeats]:
    scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
    heartbeats = AgentHeartbeats(client, clock)
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
    assert (heard.silent(), heard.notes()) == ([], [])


async def test_agents_that_say_nothing_for_a_minute_are_named(
    heard: AgentHeartbeats, client: Client, clock: FakeClock
) -> None:
    for node in ("n1", "n2"):
        await beat(heard, client, node)
    await clock.move(61)
    assert heard.notes() == ["the agents of these nodes are silent: n1, n2"]
    await client.patch(LEASES, "n1", {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}, namespace=NAMESPACE)
    await until(lambda: heard.silent() == ["n2"], "n1 has spoken again")


async def test_many_silent_agents_are_counted(heard: AgentHeartbeats, client: Client, clock: FakeClock) -> None:
    for number in range(7):
        await beat(heard, client, f"n{number}")
    await clock.move(61)
    assert heard.notes() == ["the agents of these nodes are silent: n0, n1, n2, n3, n4 and 2 more"]


async def test_a_node_whose_lease_is_deleted_is_forgotten(
    heard: AgentHeartbeats, client: Client, clock: FakeClock
) -> None:
    await beat(heard, client, "n1")
    await clock.move(61)
    await client.delete(LEASES, "n1", NAMESPACE)
    await until(lambda: heard.silent() == [], "it is forgotten")


async def test_an_agent_goes_on_beating_after_a_failure(
    scripted: ScriptedApi, heard: AgentHeartbeats, client: Client, clock: FakeClock
) -> None:
    scripted.script("PATCH", "/leases/", answer(500, message="oops"))
    task = asyncio.create_task(Heartbeat(client, "n1", clock).run())
    await until(lambda: heard.leases.all() != [], passing=clock, between_calls_of=scripted)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
