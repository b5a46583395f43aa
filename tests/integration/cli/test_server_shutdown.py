"""How a server ends: no more calls, those in flight to their end, the Lease given back."""

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aliquot.embedded.api import resources
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import ScriptedApi, held
from tests.integration.cli.servers import (
    NAMESPACE,
    Server,
    a_server,
    add_namespace,
    bind_call,
    filter_call,
    takes_no_more_calls,
)

PATIENT = ("--commit-budget", "60", "--limit-seconds", "60", "--listen-grace", "60")


@dataclass
class Busy:
    """A server with a bind call in flight, which the API server has and does not answer yet."""

    server: Server
    call: asyncio.Task[Any]
    answer: asyncio.Event


@pytest.fixture
async def busy(tmp_path: Path, scripted: ScriptedApi) -> AsyncIterator[Busy]:
    add_namespace(scripted)
    scripted.registry.create(resources.NODES, "", node_manifest(cards=make_cards()))
    pod = scripted.registry.create(resources.PODS, "default", pod_manifest()).obj
    arrived, answer = asyncio.Event(), asyncio.Event()
    scripted.script("POST", "pods/p/binding", held(arrived, answer))
    async with a_server(scripted, tmp_path, *PATIENT) as server:
        await server.process.says('"became the leader"')
        await server.post("filter", filter_call(pod))
        call = asyncio.create_task(server.post("bind", bind_call(pod)))
        await arrived.wait()
        yield Busy(server, call, answer)
        answer.set()
        await asyncio.gather(call, return_exceptions=True)


async def test_a_call_in_flight_is_answered_and_then_the_lease_given_back(busy: Busy, scripted: ScriptedApi) -> None:
    lease = scripted.registry.get(resources.LEASES, NAMESPACE, "aliquot-server").obj
    assert lease["spec"]["holderIdentity"]
    busy.server.process.send(signal.SIGTERM)
    await takes_no_more_calls(busy.server.gpushare)
    assert not busy.call.done()
    busy.answer.set()
    assert await busy.call == {"Error": ""}
    ended = (await busy.server.process.end()).clean()
    assert ended.code == 0, ended
    assert '"signal": "SIGTERM", "event": "stopping"' in ended.out
    lease = scripted.registry.get(resources.LEASES, NAMESPACE, "aliquot-server").obj
    assert not lease["spec"].get("holderIdentity"), "another server need not wait for it to run out"


async def test_a_second_signal_ends_it_at_once(busy: Busy) -> None:
    busy.server.process.send(signal.SIGTERM)
    await takes_no_more_calls(busy.server.gpushare)
    busy.server.process.send(signal.SIGTERM)
    assert (await busy.server.process.end()).code == -signal.SIGTERM
    assert not busy.answer.is_set()
