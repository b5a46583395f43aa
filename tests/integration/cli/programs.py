"""The originals' programs as processes of their own."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.fakes import ScriptedApi
from tests.integration.cli.command import LONGEST, Ended, Process, run, started
from tests.integration.cli.servers import kubeconfig

ADMISSION, GPUSHARE, ELASTIC = "gpu_admission", "gpushare_schd_extender", "elastic_gpu_scheduler"
NANO = "nano_gpu_scheduler"
ENDPOINTS = {ADMISSION: "admission", GPUSHARE: "gpushare", ELASTIC: "elastic", NANO: "elastic"}
VERBOSE = {"LOG_LEVEL": "info"}
"""gpushare's extender is silent by default, and tells no port."""


def command(program: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"aliquot.app.programs.{program}")


@dataclass(frozen=True)
class Running:
    process: Process
    url: str

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as response:
            return response.status, (await response.read()).decode(errors="replace")

    async def post(self, path: str, body: Any) -> Any:
        async with aiohttp.ClientSession() as session, session.post(self.url + path, json=body) as response:
            assert response.status == 200
            return json.loads(await response.read())


async def ended(program: str, *flags: str, **environment: str) -> Ended:
    """Of a program that ends by itself."""
    return (await run(*flags, command=command(program), **environment)).clean()


@asynccontextmanager
async def running(
    program: str, api: ScriptedApi, folder: Path, *flags: str, **environment: str
) -> AsyncIterator[Running]:
    """A program that follows the API server, with its endpoint on a free port of this machine only."""
    access = {"KUBECONFIG": kubeconfig(folder, api.url), "ALIQUOT_ADDRESS": "127.0.0.1", **VERBOSE}
    if program == ADMISSION:
        flags = ("--address=127.0.0.1:0", "--pprofAddress=127.0.0.1:0", *flags)
    variables = {"PORT": "0", **access, **environment}
    async with started(*command(program), *flags, merged=True, **variables) as process:
        await process.says("in sync with the API server")
        server = Running(process, f"http://127.0.0.1:{_port(process, ENDPOINTS[program])}")
        await is_ready(server)
        yield server


async def is_ready(server: Running) -> None:
    async with asyncio.timeout(LONGEST):
        while not await _answers_200(server):
            await asyncio.sleep(0.02)


async def _answers_200(server: Running) -> bool:
    try:
        return (await server.get("/readyz"))[0] == 200
    except aiohttp.ClientConnectionError:
        return False


def _port(process: Process, endpoint: str) -> int:
    """As klog writes it, or as JSON."""
    try:
        return process.number(f'endpoint="{endpoint}" address="127.0.0.1" port=')
    except TypeError:
        return process.number(f'"endpoint":"{endpoint}","address":"127.0.0.1","port":')
