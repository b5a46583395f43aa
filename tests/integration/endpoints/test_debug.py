"""/debug/pprof/: Go's paths, with what Python has of each."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from aliquot.app.server.observability import extra_routes
from aliquot.config.sections.listen import ListenSection
from aliquot.config.server_tree import ServerConfig
from aliquot.endpoints.asgi import Call, Routes
from aliquot.endpoints.debug import Debugger
from tests.integration.endpoints.serving import served
from tests.integration.room import Room


@dataclass(frozen=True)
class Page:
    status: int
    content_type: str
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True)
class Debug:
    session: aiohttp.ClientSession

    async def get(self, path: str) -> Page:
        async with self.session.get(f"/debug/pprof{path}") as response:
            return Page(response.status, response.content_type, await response.read())


@contextmanager
def busy_thread() -> Iterator[None]:
    """A thread that a profile must show."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture
async def debug() -> AsyncIterator[Debug]:
    async with served(Routes(Debugger().routes())) as url, aiohttp.ClientSession(url) as session:
        yield Debug(session)


@pytest.mark.parametrize("endpoint", ["gpushare", "elastic"])
def test_endpoints_of_originals_that_have_profiles_serve_them_if_they_are_asked_for(room: Room, endpoint: str) -> None:
    def paths(tree: ServerConfig) -> set[str]:
        return {path for _, path in extra_routes(endpoint, tree, room.plane, Debugger())}

    assert paths(ServerConfig()) == set()
    assert "/debug/pprof/*" in paths(ServerConfig(listen=ListenSection(profiling=True)))


@pytest.mark.parametrize("path", ["", "/"])
async def test_the_index_names_every_page(debug: Debug, path: str) -> None:
    page = await debug.get(path)
    assert (page.status, page.content_type) == (200, "text/plain")
    assert page.text.split() == ["cmdline", "goroutine", "profile", "heap", "allocs"]


@pytest.mark.parametrize("slash", ["", "/"], ids=["as gpu-admission", "as gpushare and elastic-gpu, with a slash"])
@pytest.mark.parametrize("name", ["allocs", "cmdline", "goroutine", "heap", "profile", "threadcreate"])
async def test_pages_are_text(debug: Debug, name: str, slash: str) -> None:
    with busy_thread():
        page = await debug.get(f"/{name}{slash}?seconds=0.5")
    assert (page.status, page.content_type) == (200, "text/plain")
    assert page.text


async def test_tasks_and_threads_are_shown_with_where_they_are(debug: Debug) -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(waits_for_ever(), name="patient")
    page = await debug.get("/goroutine?debug=2")
    task.cancel()
    block = next(block for block in page.text.split("\n\n") if block.startswith("task patient:"))
    inner, outer = (line for line in block.splitlines() if line.startswith("  File "))
    assert outer.endswith(", in waits_for_ever")
    assert inner.endswith(", in wait")
    assert "thread MainThread:" in page.text


async def test_only_one_recording_runs_at_a_time_and_the_next_may_follow() -> None:
    profile = Debugger().routes()["GET", "/debug/pprof/*"]
    call = Call("profile", query="seconds=0.01")
    answers = await asyncio.gather(profile(call), profile(call))
    assert [answer.status for answer in answers] == [200, 409]
    assert answers[1].body == b"Aliquot is recording profile; try again when it has finished\n"
    assert (await profile(call)).status == 200


@pytest.mark.parametrize("name", ["heap", "allocs"])
async def test_of_many_calls_for_the_heap_one_is_served_at_a_time(name: str) -> None:
    heap = Debugger().routes()["GET", "/debug/pprof/*"]
    call = Call(name, query="seconds=0.01")
    answers = await asyncio.gather(*(heap(call) for _ in range(200)))
    assert [answer.status for answer in answers] == [200] + [409] * 199
    assert answers[1].body == f"Aliquot is recording {name}; try again when it has finished\n".encode()
    assert (await heap(call)).status == 200


@pytest.mark.parametrize("seconds", ["0", "-1", "301", "many", "nan", "inf"])
async def test_a_time_that_is_none_is_refused(debug: Debug, seconds: str) -> None:
    page = await debug.get(f"/profile?seconds={seconds}")
    assert page.status == 400
    assert page.text == f"seconds={seconds} must be a number greater than 0 and at most 300\n"


@pytest.mark.parametrize("name", ["block", "mutex", "symbol", "trace"])
async def test_what_python_does_not_have_says_so(debug: Debug, name: str) -> None:
    page = await debug.get(f"/{name}")
    assert (page.status, page.text) == (501, "Python does not measure this\n")


async def test_there_is_no_other_page(debug: Debug) -> None:
    assert (await debug.get("/nothing")).status == 404
