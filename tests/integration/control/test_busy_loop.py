"""While the loop that decides is busy the Lease is renewed and health is told; a loop that is stuck loses the Lease.

The API server and the side are on threads of their own. The loop of the test is the one that decides, and is kept busy
by the test: nothing can happen on it meanwhile.
"""

import asyncio
import contextlib
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from aliquot.app.server.observability import health_port
from aliquot.clock import SystemClock
from aliquot.config.sections.listen import ListenSection
from aliquot.config.server_tree import ServerConfig
from aliquot.control import ControlPlane, Role, Side
from aliquot.embedded.api import resources
from aliquot.errors import NotLeading
from aliquot.kube import Access, Client
from aliquot.side_loop import SideLoop
from tests.factories import make_cards, node_manifest
from tests.fakes import SECONDS, ScriptedApi, until
from tests.integration.room import patient
from tests.ports import free_port

pytestmark = pytest.mark.embedded_only("the API server must be on a thread of its own")

SOON = {"lease__duration": 15, "lease__renew": 10.0, "lease__retry": 0.05}
SHORT = {"lease__duration": 2, "lease__renew": 1.0, "lease__retry": 0.05}


def stay_busy(done: Callable[[], object]) -> None:
    """Keeps the loop from turning until something has happened on other threads."""
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end, "it does not happen while this loop is busy"
        time.sleep(0.002)


@pytest.fixture
def threads() -> Iterator[tuple[SideLoop, SideLoop]]:
    with SideLoop("api") as api, SideLoop("side") as side:
        yield api, side


class JumpingClock(SystemClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@dataclass
class Running:
    api: ScriptedApi
    plane: ControlPlane
    clock: JumpingClock
    url: str

    def renewals(self) -> int:
        return len([seen for seen in self.api.writes() if "/leases" in seen.path])

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@contextlib.asynccontextmanager
async def a_leader(threads: tuple[SideLoop, SideLoop], terms: dict[str, float]) -> AsyncIterator[Running]:
    there, side = threads

    async def open_api() -> ScriptedApi:
        return await ScriptedApi().__aenter__()

    async def connect() -> Client:
        return Client(Access(api.url))

    api = await there.run(open_api())
    api.registry.create(resources.NAMESPACES, "", {"metadata": {"name": "aliquot-system"}})
    api.registry.create(resources.NODES, "", node_manifest("n1", make_cards("n1")))
    leasing, port = await side.run(connect()), free_port()
    async with Client(Access(api.url)) as client:
        clock = JumpingClock()
        plane = ControlPlane(client, clock, settings=patient(**terms), side=Side(side, leasing), identity="me")
        tree = ServerConfig(listen=ListenSection(health_port=port))
        task = asyncio.create_task(plane.run())
        try:
            async with health_port(tree, plane, Side(side, leasing), list, None):
                await until(lambda: plane.leadership.role is Role.LEADING, "it leads")
                yield Running(api, plane, clock, f"http://127.0.0.1:{port}")
        finally:  # the threads of a test that fails would run for good otherwise
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await side.run(leasing.close())
            await there.run(api.__aexit__(None, None, None))


async def test_the_lease_is_renewed_while_the_loop_is_busy(threads: tuple[SideLoop, SideLoop]) -> None:
    async with a_leader(threads, SOON) as running:
        before = running.renewals()
        stay_busy(lambda: running.renewals() >= before + 5)
        assert running.plane.leadership.may_commit


async def test_a_loop_that_is_stuck_loses_the_lease_and_knows_it_before_it_commits(
    threads: tuple[SideLoop, SideLoop],
) -> None:
    async with a_leader(threads, SHORT) as running:
        leadership = running.plane.leadership
        stay_busy(lambda: not leadership.holder)
        assert not leadership.may_commit
        with pytest.raises(NotLeading):
            leadership.require()
        await until(lambda: leadership.role is Role.LEADING, "it turns again, and stands again")


async def test_the_lease_is_given_back_at_the_end(threads: tuple[SideLoop, SideLoop]) -> None:
    async with a_leader(threads, SOON) as running:
        api = running.api
    lease = api.registry.get(resources.LEASES, "aliquot-system", "aliquot-server").obj
    assert not lease["spec"].get("holderIdentity")


@pytest.mark.parametrize(
    ("path", "says"),
    [("/healthz", "ok"), ("/readyz", "This server leads in term 1."), ("/metrics", "aliquot_loop_silence_seconds")],
)
async def test_health_is_told_while_the_loop_is_busy(threads: tuple[SideLoop, SideLoop], path: str, says: str) -> None:
    async with a_leader(threads, SOON) as running:
        with ThreadPoolExecutor(1) as asking:
            status, text = await asyncio.get_running_loop().run_in_executor(asking, running.get, path)
            assert (status, says in text) == (200, True), text
            status, text = asking.submit(running.get, path).result()  # the loop waits, and does nothing else
            assert (status, says in text) == (200, True), text


@pytest.mark.parametrize(
    ("seconds", "path", "code"),
    [(5, "/readyz", 200), (12, "/readyz", 503), (40, "/healthz", 200), (62, "/healthz", 500)],
)
async def test_a_loop_that_does_not_turn_for_long_is_not_ready_and_then_dead(
    threads: tuple[SideLoop, SideLoop], seconds: float, path: str, code: int
) -> None:
    async with a_leader(threads, SOON) as running:
        with ThreadPoolExecutor(1) as asking:
            await asyncio.get_running_loop().run_in_executor(asking, running.get, path)
            running.clock.ahead += seconds
            status, text = asking.submit(running.get, path).result()
            assert (status, "the decision loop has been busy" in text) == (code, code != 200)
