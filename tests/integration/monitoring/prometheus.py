"""A real Prometheus that scrapes what a test serves."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from tests.fakes import SECONDS
from tests.ports import free_port

_SCRAPES = 3
_BETWEEN_SECONDS = 0.05


class Prometheus:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._at: dict[str, str] = {}
        """The moment that queries are about, once every target has been scraped: a scrape that comes late on a busy
        machine would make series vanish."""
        self.url = url

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query. Fails if Prometheus cannot parse it."""
        asked = urlencode({"query": expression, **self._at})
        async with self._session.get(f"{self.url}/api/v1/query?{asked}") as answer:
            found = await answer.json()
        assert found["status"] == "success", f"{expression}: {found}"
        result: list[dict[str, Any]] = found["data"]["result"]
        return result

    async def value(self, expression: str) -> float | None:
        """Of the one series that an expression has; None without any."""
        found = await self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def follow(self) -> None:
        """Let queries be about the moment at which they are asked."""
        self._at = {}

    async def has_scraped(self, targets: int) -> bool:
        try:
            counts = await self.query("count_over_time(up[10m]) and up == 1")
        except (aiohttp.ClientError, json.JSONDecodeError):
            return False  # it is not up itself
        if len(counts) < targets or any(float(count["value"][1]) < _SCRAPES for count in counts):
            return False
        self._at = {"time": str(counts[0]["value"][0])}
        return True


@asynccontextmanager
async def scraping(programs: Mapping[str, Path], folder: Path, targets: Mapping[str, str]) -> AsyncIterator[Prometheus]:
    """Prometheus, when it has scraped each target (job and host:port) a few times, half a second apart."""
    port = free_port()
    jobs = [{"job_name": job, "static_configs": [{"targets": [at]}]} for job, at in targets.items()]
    config = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command: list[str | Path] = [
        programs["prometheus"],
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(SECONDS) as limit:
            running = Prometheus(session, f"http://127.0.0.1:{port}")
            while not await running.has_scraped(len(targets)):
                assert process.returncode is None, (folder / "log").read_text()
                await asyncio.sleep(_BETWEEN_SECONDS)
            limit.reschedule(None)
            yield running
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def promtool(programs: Mapping[str, Path], *words: str | Path) -> None:
    """Fails with what promtool says."""
    done = subprocess.run([programs["promtool"], *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def lint(programs: Mapping[str, Path], page: Path) -> list[str]:
    """What promtool finds wrong with a page of metrics, as far as its names are ours."""
    with page.open("rb") as text:
        done = subprocess.run([programs["promtool"], "check", "metrics"], stdin=text, capture_output=True, check=False)
    lines = (done.stdout + done.stderr).decode().splitlines()
    return [line for line in lines if line.startswith("aliquot_") or "error" in line]
