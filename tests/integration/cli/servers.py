"""`aliquot server` as a process on an API server that the test holds in its hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from aliquot.embedded.api import resources
from tests.fakes import ScriptedApi
from tests.integration.cli.command import ALIQUOT, LONGEST, Ended, Process, run, started

NAMESPACE = "aliquot-system"
IMPATIENT = ("--lease-retry", "0.3")

_KUBECONFIG = """
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


def kubeconfig(folder: Path, server: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(_KUBECONFIG.format(server=server))
    return str(path)


def add_namespace(api: ScriptedApi) -> None:
    """Where the servers keep their Lease."""
    api.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})


@dataclass(frozen=True)
class Server:
    process: Process
    gpushare: str
    native: str

    async def get(self, path: str) -> tuple[int, str]:
        """Of the native endpoint."""
        async with aiohttp.ClientSession() as session, session.get(self.native + path) as response:
            return response.status, await response.text()

    async def post(self, verb: str, body: Any) -> Any:
        """A scheduler's call."""
        url = f"{self.gpushare}/gpushare-scheduler/{verb}"
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
            assert response.status == 200
            return await response.json()

    async def metric(self, sample: str) -> float | None:
        """The value of a sample such as `aliquot_config_valid`."""
        _, text = await self.get("/metrics")
        values = [line.rpartition(" ")[2] for line in text.splitlines() if line.rpartition(" ")[0] == sample]
        return float(values[0]) if values else None


@asynccontextmanager
async def a_server(api: ScriptedApi, folder: Path, *flags: str, **environment: str) -> AsyncIterator[Server]:
    """A server whose endpoints are open."""
    access = ("--kubeconfig", kubeconfig(folder, api.url))
    async with started(
        *ALIQUOT, "server", *access, "--gpushare-port", "0", *flags, merged=True, **environment
    ) as process:
        await process.says('"endpoint": "native"')
        ports = [
            process.number(f'"{endpoint}", "address": "127.0.0.1", "port": ') for endpoint in ("gpushare", "native")
        ]
        yield Server(process, *(f"http://127.0.0.1:{port}" for port in ports))


async def check(*flags: str, **environment: str) -> Ended:
    return (await run("server", "--check-config", *flags, command=ALIQUOT, **environment)).clean()


async def is_ready(server: Server) -> None:
    async with asyncio.timeout(LONGEST):
        while (await server.get("/readyz"))[0] != 200:
            await asyncio.sleep(0.02)


async def takes_no_more_calls(url: str) -> None:
    async with asyncio.timeout(LONGEST):
        while await _answers(url):
            await asyncio.sleep(0.02)


async def _answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(url):
            return True
    except aiohttp.ClientConnectionError:
        return False


def filter_call(pod: Any, node: str = "n1") -> dict[str, Any]:
    """What a scheduler asks before it."""
    return {"Pod": pod, "NodeNames": [node]}


def bind_call(pod: Any, node: str = "n1") -> dict[str, str]:
    """A scheduler's bind call for a pod of the API server."""
    metadata = pod["metadata"]
    names = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
    return {**names, "Node": node}
