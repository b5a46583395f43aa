"""What a driver shows reaches the server's decisions: library, agent, Lease, cluster state, policy."""

from pathlib import Path

import pytest

from aliquot.agent.heartbeat import Heartbeat
from tests.fakes import until
from tests.integration.monitoring.cluster import BUSY, running_agent
from tests.integration.room import Room

pytestmark = pytest.mark.embedded_only("time is moved by hand")


async def test_the_load_of_a_card_is_known_to_policies_and_in_its_history(room: Room, folder: Path) -> None:
    async with running_agent(room, folder):
        heartbeats = room.plane.heartbeats

        def measured() -> float | None:
            sample = heartbeats.samples.get("n1")
            card = sample.load.cards.get(BUSY) if sample is not None else None
            return card.cores if card is not None else None

        await until(lambda: measured() is not None, "the agent reports load", passing=room.clock)
        assert measured() == 0.42
        assert room.plane.cluster.fleet.blocks[0].loads("n1")[BUSY][0] == 0.42
        found = await room.plane.past_load.card(BUSY)
        assert found is not None
        assert (found.source, found.history.samples[-1].cores) == ("memory", 0.42)
        assert list(heartbeats.silent()) == []


async def test_an_agent_that_ends_is_noticed_within_two_periods(room: Room, folder: Path) -> None:
    async with running_agent(room, folder):
        await until(lambda: room.plane.heartbeats.leases.all(), "the agent beats", passing=room.clock)
    silence = room.plane.heartbeats.silence("n1")
    assert silence is not None
    await room.clock.move(40 - silence)
    assert list(room.plane.heartbeats.silent()) == []
    await room.clock.move(1)
    assert list(room.plane.heartbeats.silent()) == ["n1"]


async def test_the_lease_of_a_node_that_is_removed_goes_with_it(room: Room, folder: Path) -> None:
    async with running_agent(room, folder):
        await until(lambda: room.plane.heartbeats.leases.all(), "the agent beats", passing=room.clock)

    await room.remove_node("n1")

    await until(lambda: room.plane.heartbeats.leases.all() == [], "the Lease is collected")


async def test_a_lease_that_outlives_its_node_is_nobody_s_silence(room: Room, folder: Path) -> None:
    async with running_agent(room, folder):
        await Heartbeat(room.client, "gone", room.clock).beat()
        await until(lambda: len(room.plane.heartbeats.leases.all()) == 2, "both are known", passing=room.clock)
    await room.clock.move(60)

    assert list(room.plane.heartbeats.silent()) == ["n1"]
    assert "the agents of these nodes are silent: n1" in room.plane.notes()
