"""The load of the past: the last hour from memory, more from Prometheus, and memory where that does not answer."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.clock import SystemClock
from aliquot.control.inputs.load_history import LoadHistory
from aliquot.control.inputs.past_load import PastLoad
from aliquot.endpoints import asgi
from aliquot.model import Pod
from aliquot.model.load import CardLoad
from tests.factories import make_pod
from tests.integration.endpoints.serving import served
from tests.integration.monitoring.prometheus import scraping
from tests.ports import free_port

DAY = 86400.0
SAMPLES = """
aliquot_card_cores_busy_ratio{uuid="GPU-\\"0",index="0",model="T4"} 0.25
aliquot_card_memory_used_bytes{uuid="GPU-\\"0",index="0",model="T4"} 4096
aliquot_container_cores_busy_ratio{namespace="default",pod="p",container="a",uuid="GPU-1",method="measured"} 0.5
aliquot_container_cores_busy_ratio{namespace="default",pod="p",container="b",uuid="GPU-1",method="measured"} 0.25
aliquot_container_memory_used_bytes{namespace="default",pod="p",container="a",uuid="GPU-1"} 1024
"""


async def pages(_: asgi.Call) -> asgi.Response:
    return asgi.text(SAMPLES.lstrip())


def no_pod(_: str) -> Pod | None:
    return None


@pytest.fixture
async def prometheus(programs: dict[str, Path], tmp_path: Path) -> AsyncIterator[str]:
    routes = asgi.Routes({("GET", "/metrics"): pages})
    async with served(routes) as url, scraping(programs, tmp_path, {"agent": url.removeprefix("http://")}) as running:
        yield running.url


async def test_more_than_an_hour_comes_from_prometheus(prometheus: str) -> None:
    pod = make_pod("p", 3, metadata={"creationTimestamp": "2020-01-01T00:00:00Z"})
    past = PastLoad(LoadHistory(), lambda uid: pod if uid == "u" else None, SystemClock(), prometheus)
    try:
        card, used = await past.card('GPU-"0', DAY), await past.pod("u", DAY)
        assert await past.card("GPU-9", DAY) is None
        assert await past.pod("gone", DAY) is None
    finally:
        await past.close()
    assert card is not None
    assert used is not None
    assert (card.source, used.source) == ("prometheus", "prometheus")
    assert (card.history.samples[-1].cores, card.history.samples[-1].memory_bytes) == (0.25, 4096)
    assert (used.history.samples[-1].cores, used.history.samples[-1].memory_bytes) == (0.75, 1024)
    assert card.history.start == card.history.samples[0].at
    assert past.notes() == []


def known() -> LoadHistory:
    history = LoadHistory()
    history.take("n1", SystemClock().wall_ns() / 1e9, {"GPU-0": CardLoad(0.5)}, {})
    return history


async def test_the_last_hour_comes_from_memory() -> None:
    past = PastLoad(known(), no_pod, SystemClock(), f"http://127.0.0.1:{free_port()}")
    found = await past.card("GPU-0")
    await past.close()
    assert found is not None
    assert (found.source, found.history.samples[0].cores, past.notes()) == ("memory", 0.5, [])


async def _fails(_: asgi.Call) -> asgi.Response:
    return asgi.text("no", 500)


async def _nonsense(_: asgi.Call) -> asgi.Response:
    return asgi.text('{"status": "success", "data": {"result": [{"values": [[1, "much"]]}]}}')


async def _too_much(_: asgi.Call) -> asgi.Response:
    return asgi.text(" " * 2**21)


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        pytest.param(_fails, "answers with status 500", id="an error"),
        pytest.param(_nonsense, "gives no answer that can be used", id="not a number"),
        pytest.param(_too_much, "gives no answer that can be used", id="too large"),
    ],
)
async def test_memory_answers_where_prometheus_does_not(answer: Any, trouble: str) -> None:
    async with served(asgi.Routes({("GET", "/api/v1/query_range"): answer})) as url:
        past = PastLoad(known(), no_pod, SystemClock(), url)
        found = await past.card("GPU-0", DAY)
        await past.close()
    assert found is not None
    assert found.source == "memory"
    (note,) = past.notes()
    assert note.startswith(f"load is known for the last hour only: {url} {trouble}")


async def test_a_prometheus_that_is_away_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    past = PastLoad(known(), no_pod, SystemClock(), url)
    assert await past.card("GPU-0", DAY) is not None
    await past.close()
    (note,) = past.notes()
    assert note.startswith(f"load is known for the last hour only: {url} cannot be reached: ")
