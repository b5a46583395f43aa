"""Work on another thread's event loop: its result, its errors, and its end come back."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from aliquot.side_loop import SideLoop
from tests.fakes import until


@pytest.fixture
def side() -> Iterator[SideLoop]:
    with SideLoop("side") as running:
        yield running


async def where() -> threading.Thread:
    return threading.current_thread()


async def test_work_is_done_on_the_other_thread_and_its_result_comes_back(side: SideLoop) -> None:
    thread = await side.run(where())
    assert (thread is not threading.current_thread(), thread.name) == (True, "side")


async def test_its_error_is_raised_here(side: SideLoop) -> None:
    async def fail() -> None:
        raise ValueError("there")

    with pytest.raises(ValueError, match="there"):
        await side.run(fail())


class Cleaning:
    """Work that takes its time to end."""

    def __init__(self) -> None:
        self.began = self.ended = False

    async def work(self) -> None:
        self.began = True
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            self.ended = True


@pytest.mark.parametrize("wait", [pytest.param(True, id="while it runs"), pytest.param(False, id="before it began")])
async def test_cancelled_here_it_has_ended_there(side: SideLoop, wait: bool) -> None:
    cleaning = Cleaning()
    task = asyncio.create_task(side.run(cleaning.work()))
    if wait:
        await until(lambda: cleaning.began, "it runs")
    else:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaning.ended is cleaning.began


async def test_an_error_on_the_way_out_does_not_hide_that_it_was_cancelled(side: SideLoop) -> None:
    began = threading.Event()

    async def fail_at_the_end() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("at the end")

    task = asyncio.create_task(side.run(fail_at_the_end()))
    await until(began.is_set, "it runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_still_runs_at_the_end_is_cancelled() -> None:
    cleaning = Cleaning()
    with SideLoop("side") as side:
        task = asyncio.create_task(side.run(cleaning.work()))
        await until(lambda: cleaning.began, "it runs")
    assert cleaning.ended
    with pytest.raises(asyncio.CancelledError):
        await task
