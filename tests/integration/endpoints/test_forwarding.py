"""A follower forwards decisions to the leader, once, and reports failures in the endpoint's wire format."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs

from aliquot.control import ControlPlane, Role
from aliquot.embedded.api import resources
from aliquot.endpoints import asgi, health
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.forwarding import Forwarder
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.kube import Client
from tests.fakes import FakeClock, ScriptedApi, until
from tests.integration.endpoints.endpoint import BIND, FILTER, INSPECT, Endpoint, bind_args
from tests.integration.endpoints.serving import served
from tests.integration.room import Room

NAMESPACE = "aliquot-system"
LEASE = "aliquot-server"


class Leader:
    """The leader: its answer, and the calls that it got."""

    def __init__(self, status: int = 200, answer: Any = None) -> None:
        self.asked: list[asgi.Call] = []
        self.status = status
        self.answer = answer if answer is not None else {"Error": ""}

    async def handle(self, call: asgi.Call) -> asgi.Response:
        self.asked.append(call)
        return asgi.json(self.answer, self.status)

    def routes(self) -> Routes:
        return Routes({("POST", BIND): self.handle, ("POST", FILTER): self.handle})


def make_lease(api: ScriptedApi, holder: str, **endpoints: str) -> None:
    if not any(held.obj["metadata"]["name"] == NAMESPACE for held in api.store.snapshot("namespaces")):
        api.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
    annotations = {"aliquot.io/endpoints": msgspec.json.encode(endpoints).decode()}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600}
    body = {"metadata": {"name": LEASE, "annotations": annotations}, "spec": spec}
    api.registry.create(resources.LEASES, NAMESPACE, body)


@asynccontextmanager
async def follower(
    api: ScriptedApi, client: Client, clock: FakeClock, *, seconds: float = 4.5, sees_holder: bool = True
) -> AsyncIterator[Endpoint]:
    """A follower of that leader."""
    room = Room(api, client, clock)
    room.plane = ControlPlane(client, clock)
    async with AsyncExitStack() as stack:
        running = asyncio.create_task(room.plane.run())
        stack.push_async_callback(_end, running)
        forwarder = await stack.enter_async_context(Forwarder(room.plane, seconds=seconds))
        own = GpuShareEndpoint(room.plane, forwarder).routes()
        whole = Routes({**own, **health.routes(room.plane, endpoint=GpuShareEndpoint.name)})
        url = await stack.enter_async_context(served(whole))
        room.plane.leadership.advertise({GpuShareEndpoint.name: url})
        session = await stack.enter_async_context(aiohttp.ClientSession())
        await room.in_sync()
        await until(lambda: bool(room.plane.leadership.holder) is sees_holder, passing=clock, between_calls_of=api)
        assert room.plane.leadership.role is Role.FOLLOWING
        yield Endpoint(session, url, room)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("path", [FILTER, BIND])
async def test_the_leader_decides(scripted: ScriptedApi, client: Client, clock: FakeClock, path: str) -> None:
    holder = Leader(answer={"Error": "whatever it says"})
    async with served(holder.routes()) as url:
        make_lease(scripted, "holder", gpushare=url)
        async with follower(scripted, client, clock) as endpoint:
            reply = await endpoint.post(path, {"any": "body"})
    assert (reply.status, reply.json) == (200, {"Error": "whatever it says"})
    (call,) = holder.asked
    assert (call.path, msgspec.json.decode(call.body)) == (path, {"any": "body"})
    assert call.headers[b"x-aliquot-forwarded"] == b"1"


async def test_the_leader_s_status_code_is_returned(scripted: ScriptedApi, client: Client, clock: FakeClock) -> None:
    async with served(Leader(status=413).routes()) as url:
        make_lease(scripted, "holder", gpushare=url)
        async with follower(scripted, client, clock) as endpoint:
            assert (await endpoint.post(FILTER, {})).status == 413


async def test_read_routes_are_answered_by_the_follower(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    make_lease(scripted, "holder", gpushare="http://127.0.0.1:1")
    async with follower(scripted, client, clock) as endpoint:
        await endpoint.room.add_node()
        (node,) = (await endpoint.send("GET", INSPECT)).json["nodes"]
    assert node["name"] == "n1"


@pytest.mark.parametrize(
    ("endpoints", "status"),
    [
        pytest.param({"gpushare": "http://127.0.0.1:1"}, 200, id="the same as ours"),
        pytest.param({"admission": "http://127.0.0.1:1"}, 503, id="different from ours"),
    ],
)
async def test_an_endpoint_is_ready_only_if_the_leader_has_it_too(
    scripted: ScriptedApi, client: Client, clock: FakeClock, endpoints: dict[str, str], status: int
) -> None:
    make_lease(scripted, "holder", **endpoints)
    async with follower(scripted, client, clock) as endpoint:
        ready = await endpoint.send("GET", "/readyz")
    assert ready.status == status
    assert ("has no gpushare endpoint" in ready.text) == (status == 503)


async def test_a_call_is_forwarded_only_once(scripted: ScriptedApi, client: Client, clock: FakeClock) -> None:
    """Two servers that take each other for the leader must not forward a call in circles."""
    holder = Leader()
    async with served(holder.routes()) as url:
        make_lease(scripted, "holder", gpushare=url)
        async with follower(scripted, client, clock) as endpoint, aiohttp.ClientSession() as session:
            address, marked = f"{endpoint.url}{BIND}", {"X-Aliquot-Forwarded": "1"}
            async with session.post(address, json={}, headers=marked) as response:
                answer = await response.json()
    assert answer == {"Error": "another server forwarded this call here, but the leader is holder"}
    assert holder.asked == []


@pytest.mark.parametrize(
    ("endpoints", "why"),
    [
        pytest.param({}, "the leader holder has no gpushare endpoint", id="a leader without that endpoint"),
        pytest.param(
            {"gpushare": "http://127.0.0.1:1"},
            "the leader holder did not answer at http://127.0.0.1:1: ",
            id="an unreachable leader",
        ),
    ],
)
async def test_an_unreachable_leader_is_a_fault_in_the_endpoint_s_format(
    scripted: ScriptedApi, client: Client, clock: FakeClock, endpoints: dict[str, str], why: str
) -> None:
    make_lease(scripted, "holder", **endpoints)
    async with follower(scripted, client, clock) as endpoint:
        await endpoint.room.add_node()
        pod = await endpoint.room.add_pod()
        with capture_logs() as logs:
            assert (await endpoint.filter(3, "n1"))["Error"].startswith(why)
            assert (await endpoint.bind(pod)).startswith(why)
    assert scripted.bindings() == []
    # once, although a scheduler calls all the time
    (logged,) = (line for line in logs if line["event"] == "cannot forward calls to the leader")
    assert (logged["endpoint"], logged["why"].startswith(why)) == ("gpushare", True)


async def test_a_slow_leader_times_out_before_the_scheduler_does(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    never = asyncio.Event()

    async def hang(_: asgi.Call) -> asgi.Response:
        await never.wait()
        return asgi.text("")

    async with served(Routes({("POST", BIND): hang})) as url:
        make_lease(scripted, "holder", gpushare=url)
        async with follower(scripted, client, clock, seconds=0.05) as endpoint:
            reply = await endpoint.post(BIND, {})
        never.set()
    assert reply.json["Error"].startswith("the leader holder did not answer at ")


async def test_without_a_leader_both_verbs_say_so(scripted: ScriptedApi, client: Client, clock: FakeClock) -> None:
    """The Lease's namespace is missing, so nobody can hold the Lease."""
    async with follower(scripted, client, clock, sees_holder=False) as endpoint:
        await endpoint.room.add_node()
        pod = await endpoint.room.add_pod()
        why = f"no server holds the Lease {NAMESPACE}/{LEASE}"
        assert (await endpoint.filter(3, "n1"))["Error"].startswith(why)
        assert (await endpoint.bind(pod)).startswith(why)
        assert (await endpoint.post(BIND, bind_args(pod))).status == 200


async def test_a_restarted_leader_is_not_ready_while_the_lease_names_its_former_self(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    """After a kill and a restart at the same address, the Lease names the former process until it expires."""
    async with follower(scripted, client, clock, sees_holder=False) as endpoint:
        await endpoint.room.add_node()
        make_lease(scripted, "before", gpushare=endpoint.url)
        leadership = endpoint.room.plane.leadership
        await until(lambda: leadership.holder == "before", passing=clock, between_calls_of=scripted)
        why = f"before holds the Lease {NAMESPACE}/{LEASE} with this server's own address"
        assert (await endpoint.filter(3, "n1"))["Error"].startswith(why)
        ready = await endpoint.send("GET", "/readyz")
    assert (ready.status, ready.text.startswith(why)) == (503, True)
