"""The demo's stream of jobs, and an API server that refuses some."""

import asyncio

from structlog.testing import capture_logs

from aliquot.app.demo.samples import Sample
from aliquot.app.demo.workload import Workload
from aliquot.dialects import standard_dialects
from tests.fakes import FakeClock, answer, until
from tests.integration.room import Room


async def test_a_job_that_cannot_be_brought_is_told_and_the_next_one_comes(room: Room) -> None:
    await room.add_node()
    room.api.script("POST", "/pods$", answer(403, message="not now"))
    clock = FakeClock()
    samples = [Sample(standard_dialects()["gpushare"])]
    with capture_logs() as lines:
        stream = asyncio.create_task(Workload(room.client, room.plane, samples, clock=clock).run())
        await until(lambda: len(room.api.writes()) == 2, "the next job comes", passing=clock)
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
    told = [(line["log_level"], line["error"]) for line in lines if line["event"] == "skipping a job of the stream"]
    assert [level for level, error in told if "not now" in error] == ["warning"]
