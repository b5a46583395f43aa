"""The benchmark of the agent measures what it says: the real command hands cards over to every pod."""

import shutil

import pytest

from bench import agent
from bench.__main__ import exceeded
from bench.measuring import Row

SIZE = agent.Size(cards=2, pods=4, processes=8, idle_seconds=0.1)


@pytest.mark.skipif(shutil.which("cc") is None, reason="the fake NVML library needs a C compiler")
async def test_every_pod_starts_and_memory_and_cpu_are_measured() -> None:
    measured = await agent.measure(SIZE)
    assert 0 < measured.pss_mb <= measured.rss_mb
    assert measured.start_ms > 0


async def test_a_plugin_that_does_nothing_is_called_as_well() -> None:
    assert await agent.idle_calls_ms(SIZE.pods) > 0


def test_only_what_is_above_a_limit_fails() -> None:
    rows = [
        Row("memory (RSS)", 60.1, 60.0, 1.002, "MB", is_limit=True),
        Row("memory (PSS)", 60.0, 60.0, 1.0, "MB", is_limit=True),
        Row("Allocate and PreStart", 8.0, 3.0, 2.7, "ms CPU"),
    ]
    assert exceeded("agent", rows) == ["agent: memory (RSS): 60.100 MB, limit 60"]
