"""What the history driver's gate does to the writes of one server, and to nobody else's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from aliquot.embedded import EmbeddedCluster
from aliquot.kube import CONFIG_MAPS, Access, Client, NoAnswer
from tests.reliability.history.figures import Figures
from tests.reliability.history.gate import Gate
from tests.reliability.history.story import Story

ACTS_WITHIN = 3600.0
AT_ONCE = 1
"""A seed with which the first late write is made as soon as its connection is cut."""


def config_map(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}}


@asynccontextmanager
async def gated() -> AsyncIterator[tuple[Gate, Client, Client]]:
    """The gate, a server's client and somebody else's."""
    gate = Gate(Random(AT_ONCE), ACTS_WITHIN, Story(), Figures())
    async with EmbeddedCluster(middlewares=[gate.middleware]) as cluster:
        token = cluster.users.add("server")
        gate.names[token] = "server"
        async with Client(Access(cluster.url, token=token)) as server, Client(Access(cluster.url)) as other:
            yield gate, server, other


async def names(client: Client) -> list[str]:
    return [found.metadata.name for found in (await client.list(CONFIG_MAPS, namespace="default")).items]


async def test_a_late_write_has_no_answer_and_is_made() -> None:
    async with gated() as (gate, server, other):
        gate.late_share = 1.0
        with pytest.raises(NoAnswer):
            await server.create(CONFIG_MAPS, config_map("late"), "default")
        await other.create(CONFIG_MAPS, config_map("at-once"), "default")
        await gate.settled()
        assert await names(server) == ["at-once", "late"]


async def test_a_server_that_is_cut_off_reads_and_writes_nothing() -> None:
    async with gated() as (gate, server, other):
        gate.cut("server")
        with pytest.raises(NoAnswer):
            await server.create(CONFIG_MAPS, config_map("never"), "default")
        with pytest.raises(NoAnswer):
            await names(server)
        assert await names(other) == []
        gate.mend("server")
        assert await names(server) == []


async def test_every_write_is_told_with_whose_it_is() -> None:
    told = []
    async with gated() as (gate, server, other):
        gate.on_write = lambda *what: told.append(what)
        await server.create(CONFIG_MAPS, config_map("a"), "default")
        await other.create(CONFIG_MAPS, config_map("b"), "default")
        await names(server)
    assert told == [("server", "POST /api/v1/namespaces/default/configmaps")]
