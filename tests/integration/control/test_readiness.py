"""`/readyz`: 503 with the reason as long as answers cannot be trusted, 200 otherwise."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aliquot.control import ControlPlane, Role
from aliquot.control.leadership.rights import ONLY_ONE
from aliquot.embedded.api import resources
from aliquot.endpoints import health
from aliquot.endpoints.asgi import Call
from aliquot.kube import Client
from tests.fakes import FakeClock, ScriptedApi, answer, held, until
from tests.settings import server_config

MEANWHILE = 5
"""Seconds within which a lost API server must show."""


@asynccontextmanager
async def server(client: Client, clock: FakeClock, **settings: Any) -> AsyncIterator[ControlPlane]:
    plane = ControlPlane(client, clock, settings=server_config(**settings), identity="me")
    task = asyncio.create_task(plane.run())
    try:
        yield plane
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def readyz(plane: ControlPlane) -> tuple[int, str]:
    answered = await health.routes(plane)["GET", "/readyz"](Call())
    return answered.status, answered.body.decode()


@pytest.fixture(autouse=True)
def namespace(scripted: ScriptedApi) -> None:
    scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": "aliquot-system"}})


@pytest.mark.parametrize("kind", ["nodes", "pods"])
async def test_503_before_the_first_list(scripted: ScriptedApi, client: Client, clock: FakeClock, kind: str) -> None:
    arrived, release = asyncio.Event(), asyncio.Event()
    scripted.script("GET", rf"/api/v1/{kind}\?", held(arrived, release))
    async with server(client, clock) as plane:
        await arrived.wait()
        code, why = await readyz(plane)
        assert (code, "has not listed yet" in why) == (503, True)
        release.set()
        await until(lambda: not plane.not_ready(), "it becomes ready")


async def test_200_while_it_leads(client: Client, clock: FakeClock) -> None:
    async with server(client, clock) as plane:
        await until(lambda: plane.leadership.role is Role.LEADING)
        code, text = await readyz(plane)
        assert (code, text.splitlines()[0]) == (200, "ok")


async def test_503_without_a_known_holder_and_200_with_one(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    scripted.script("POST", "/leases$", *[answer(403, reason="Forbidden", message="not yet")] * 2)
    async with server(client, clock) as plane:
        await until(lambda: plane.leadership.no_holder().endswith("not yet"))
        assert await readyz(plane) == (503, "no server holds the Lease aliquot-system/aliquot-server: not yet")
        await until(lambda: not plane.not_ready(), passing=clock, between_calls_of=scripted)
        assert (await readyz(plane))[0] == 200


async def test_200_while_another_server_holds_the_lease_and_503_when_it_has_run_out(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 15}
    scripted.registry.create(resources.LEASES, "aliquot-system", {"metadata": {"name": "aliquot-server"}, "spec": spec})
    async with server(client, clock) as plane:
        await until(lambda: plane.leadership.holder == "another")
        assert (await readyz(plane))[0] == 200
        scripted.script("PATCH", "/leases/", *[answer(500, message="oops")] * 100)
        await until(lambda: plane.leadership.no_holder() != "", passing=clock, between_calls_of=scripted)
        assert (await readyz(plane))[0] == 503


async def test_503_within_five_seconds_of_losing_the_api_server(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    """An open watch would be silent for minutes."""
    async with server(client, clock, lease__enabled=False) as plane:
        await until(lambda: not plane.not_ready())
        scripted.script("GET", "/version", *[answer(503, message="away")] * 50)
        lost = clock.monotonic()
        await until(lambda: plane.not_ready(), "the loss is seen", passing=clock, between_calls_of=scripted)
        assert (await readyz(plane))[0] == 503
        assert clock.monotonic() - lost < MEANWHILE


async def test_503_within_five_seconds_of_an_api_server_that_takes_calls_and_does_not_answer(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    async with server(client, clock, lease__enabled=False) as plane:
        await until(lambda: not plane.not_ready())
        arrived = asyncio.Event()
        scripted.script("GET", "/version", *[held(arrived, asyncio.Event())] * 50)
        lost = clock.monotonic()
        await until(arrived.is_set, "it is asked", passing=clock, between_calls_of=scripted)
        await until(lambda: plane.not_ready(), "the loss is seen", passing=clock)
        assert await readyz(plane) == (503, "the API server has not answered for 2 s")
        assert clock.monotonic() - lost < MEANWHILE


async def test_a_server_that_is_alone_by_choice_needs_no_holder(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    async with server(client, clock, lease__enabled=False) as plane:
        await until(lambda: not plane.not_ready())
        assert await readyz(plane) == (200, f"ok\nThis server runs alone, without Lease and epoch; {ONLY_ONE}.")
    assert not [seen for seen in scripted.seen if "/aliquot-system/" in seen.path]
