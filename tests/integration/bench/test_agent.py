"""The benchmark of the agent measures what it says: the real command hands cards over to every pod."""

import shutil

import pytest

from bench import agent

SIZE = agent.Size(cards=2, pods=4, idle_seconds=0.1)


@pytest.mark.skipif(shutil.which("cc") is None, reason="the fake NVML library needs a C compiler")
async def test_every_pod_starts_and_memory_and_cpu_are_measured() -> None:
    measured = await agent.measure(SIZE)
    assert 0 < measured.pss_mb <= measured.rss_mb
    assert measured.start_ms > 0


async def test_a_plugin_that_does_nothing_is_called_as_well() -> None:
    assert await agent.idle_calls_ms(SIZE.pods) > 0
