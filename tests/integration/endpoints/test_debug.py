"""/debug/pprof/: Go's paths, with Python's equivalents."""

import asyncio
import gzip
from collections.abc import AsyncIterator
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

NAMED = ("allocs", "block", "goroutine", "heap", "mutex", "threadcreate")


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


@pytest.fixture
async def debug() -> AsyncIterator[Debug]:
    async with served(Routes(Debugger().routes())) as url, aiohttp.ClientSession(url) as session:
        yield Debug(session)


@pytest.mark.parametrize("endpoint", ["gpushare", "elastic"])
def test_endpoints_whose_originals_have_profiles_serve_them_if_enabled(room: Room, endpoint: str) -> None:
    def paths(tree: ServerConfig) -> set[str]:
        return {path for _, path in extra_routes(endpoint, tree, room.plane, Debugger())}

    assert paths(ServerConfig()) == set()
    assert "/debug/pprof/heap" in paths(ServerConfig(listen=ListenSection(profiling=True)))


@pytest.mark.parametrize("path", ["", "/"])
async def test_the_index_names_every_page(debug: Debug, path: str) -> None:
    page = await debug.get(path)
    assert (page.status, page.content_type) == (200, "text/html")
    for name in (*NAMED, "cmdline", "profile", "symbol", "trace"):
        assert f'<a href="/debug/pprof/{name}?debug=1">' in page.text


@pytest.mark.parametrize("slash", ["", "/"], ids=["as gpu-admission", "as gpushare and elastic-gpu, with a slash"])
@pytest.mark.parametrize("name", NAMED)
async def test_named_profiles_are_protobuf_or_text_with_debug(debug: Debug, name: str, slash: str) -> None:
    page = await debug.get(f"/{name}{slash}")
    assert (page.status, page.content_type) == (200, "application/octet-stream")
    assert gzip.decompress(page.body)
    page = await debug.get(f"/{name}{slash}?debug=1")
    assert (page.status, page.content_type) == (200, "text/plain")
    assert page.text


async def test_tasks_and_threads_are_shown_with_their_stacks(debug: Debug) -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(waits_for_ever(), name="patient")
    page = await debug.get("/goroutine?debug=2")
    task.cancel()
    block = next(block for block in page.text.split("\n\n") if block.startswith("task patient:"))
    functions = [line.strip() for line in block.splitlines()[1::2]]
    assert functions[0] == "Event.wait"
    assert functions[1].endswith("waits_for_ever")
    assert "thread MainThread (" in page.text


@pytest.mark.parametrize("name", ["heap", "profile"])
async def test_a_recording_is_protobuf_or_text_with_debug(debug: Debug, name: str) -> None:
    page = await debug.get(f"/{name}?seconds=0.01")
    assert (page.status, page.content_type) == (200, "application/octet-stream")
    assert gzip.decompress(page.body)
    page = await debug.get(f"/{name}?seconds=0.01&debug=1")
    assert (page.status, page.content_type) == (200, "text/plain")
    assert ("# resident: " in page.text) == (name == "heap")


async def test_only_one_recording_runs_at_a_time() -> None:
    profile = Debugger().routes()["GET", "/debug/pprof/profile"]
    call = Call(query="seconds=0.01")
    answers = await asyncio.gather(profile(call), profile(call))
    assert [answer.status for answer in answers] == [200, 409]
    assert answers[1].body == b"Aliquot is recording profile; try again when it has finished\n"
    assert (await profile(call)).status == 200


@pytest.mark.parametrize("name", ["heap", "allocs"])
async def test_only_one_heap_call_runs_at_a_time(name: str) -> None:
    heap = Debugger().routes()["GET", f"/debug/pprof/{name}"]
    answers = await asyncio.gather(*(heap(Call()) for _ in range(200)))
    assert [answer.status for answer in answers] == [200] + [409] * 199
    assert answers[1].body == b"Aliquot is recording heap; try again when it has finished\n"
    assert (await heap(Call())).status == 200


@pytest.mark.parametrize("seconds", ["0", "-1", "301", "many", "nan", "inf"])
async def test_invalid_seconds_are_refused(debug: Debug, seconds: str) -> None:
    page = await debug.get(f"/profile?seconds={seconds}")
    assert page.status == 400
    assert page.text == f"seconds={seconds} must be a number greater than 0 and at most 300\n"


async def test_pages_that_python_cannot_fill_say_so(debug: Debug) -> None:
    assert (await debug.get("/trace?seconds=1")).status == 501
    assert (await debug.get("/mutex?debug=1")).text.startswith("Python does not measure")
    assert (await debug.get("/symbol")).text == "num_symbols: 0\n"
    assert (await debug.get("/nothing")).status == 404
