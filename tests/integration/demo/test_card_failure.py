"""The demo's card that fails and returns."""

import asyncio
from pathlib import Path

import pytest

from aliquot.app.demo import card_failure
from aliquot.app.demo.cluster import DemoCluster
from aliquot.app.demo.machines import Machine
from tests.fakes import FakeClock, until


@pytest.mark.parametrize("has_agent", [True, False], ids=["real agent", "simulated"])
async def test_a_card_fails_and_returns_under_a_pod_and_for_one_that_waits(folder: Path, has_agent: bool) -> None:
    lines: list[str] = []
    machines = [Machine("n1", ("NVIDIA A100-SXM4-80GB",), ("gpushare",), has_agent)]
    machines += [Machine("n2", ("Tesla T4", "Tesla T4"), ("gpushare",), has_agent)]
    async with DemoCluster(folder, machines) as demo:
        await card_failure.show(demo, lines.append, 60.0)
    text = "\n".join(lines)
    assert text.startswith("Card 0 of n1 fails (XID 79")
    assert "Pod patient waits: 0/2 nodes are available: " in text
    assert "every GPU that matches is unhealthy or cordoned" in text
    assert text.endswith("Card 0 of n1 is back.\n  Pod patient runs on it, next to pod steady.")


async def test_a_card_that_does_not_return_is_an_error_that_says_what_was_waited_for(folder: Path) -> None:
    async with DemoCluster(folder, [Machine("n1", ("Tesla T4",), ("gpushare",))]) as demo:
        with pytest.raises(card_failure.CardNotBack, match=r"n1: not so after 0.2 s: steady runs"):
            await card_failure.show(demo, lambda _: None, 0.2)


async def test_while_the_demo_stays_cards_fail_and_return(folder: Path) -> None:
    clock = FakeClock()
    async with DemoCluster(folder, [Machine("n1", ("NVIDIA A10",), ("gpushare",))]) as demo:
        trouble = asyncio.create_task(card_failure.now_and_then(demo, 1, clock))

        def health() -> list[bool]:
            return [gpu.healthy for gpu in demo.plane.cluster.cards("n1").gpus]

        await until(lambda: health() == [False], passing=clock)
        await until(lambda: health() == [True], passing=clock)
        trouble.cancel()
        await asyncio.gather(trouble, return_exceptions=True)
