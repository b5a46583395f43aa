"""The agent's own listener, which every pod of the cluster can call."""

import asyncio
import http.client
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from aliquot.agent.health_listener import listening
from tests.fakes import SECONDS
from tests.ports import free_port

METRICS = "a_metric 1\n" * 10


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Where an agent listens."""
    found = free_port()
    async with listening(found, list, lambda: METRICS):
        yield found


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_healthz_does_not_answer_while_the_event_loop_hangs() -> None:
    """Which is what kubelet's probe is for."""
    found, loop, goes_on = free_port(), asyncio.new_event_loop(), threading.Event()

    async def listen() -> None:
        async with listening(found, list, str):
            await asyncio.Event().wait()

    listener = loop.create_task(listen())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.gather(listener, return_exceptions=True)))
    thread.start()
    try:
        while not answers(found, SECONDS):
            assert thread.is_alive()
        loop.call_soon_threadsafe(goes_on.wait)
        assert not answers(found, 0.2)
        goes_on.set()
        assert answers(found, SECONDS)
    finally:
        goes_on.set()
        loop.call_soon_threadsafe(listener.cancel)
        thread.join()
        loop.close()


def answers(port: int, seconds: float) -> bool:
    """Whether a call of /healthz is answered."""
    caller = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        caller.request("GET", "/healthz")
        return caller.getresponse().status == 200
    except (TimeoutError, ConnectionRefusedError):
        return False
    finally:
        caller.close()


async def test_one_address_with_many_calls_keeps_out_no_other(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
    writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(SECONDS):
        assert (await reader.read()).endswith(b"ok")
    for _, each in [*silent, (reader, writer)]:
        each.close()


async def call(port: int, request: bytes = b"GET /metrics HTTP/1.1\r\n\r\n") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(SECONDS):
        answer = await reader.read()
    writer.close()
    return answer.decode()


async def test_a_caller_gets_its_answer(port: int) -> None:
    assert (await call(port)).endswith(METRICS)
    assert (await call(port, b"GET /healthz HTTP/1.1\r\n\r\n")).endswith("\r\n\r\nok")


@pytest.mark.parametrize("request_", [b"\r\n\r\n", b"\x00\xff\r\n\r\n", b"x" * 2**18], ids=["nothing", "noise", "long"])
async def test_what_is_no_request_gets_no_answer(port: int, request_: bytes) -> None:
    with suppress(ConnectionResetError):
        assert await call(port, request_) == ""
    assert (await call(port)).endswith(METRICS)


async def test_callers_that_say_nothing_neither_use_up_the_file_descriptors_nor_keep_others_out(port: int) -> None:
    before = open_files()
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
    assert (await call(port)).endswith(METRICS)
    ours = open_files() - before - len(silent)
    for _, writer in silent:
        writer.close()
    assert ours < 100
