"""What a watch of the query API costs the server, per event and watcher, beside kube-apiserver's watch of pods.

Both speak TLS to the same watchers, and events come one at a time, 50 a second. CPU is that of the server's process
with watchers, less what the same events take without them. Then events come as fast as they can be made, one watcher
does not read, and the server's memory must stay flat.
"""

import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import aiohttp

from bench.measuring import Row, cpu_of, say
from bench.mirror import Size as ClusterSize
from bench.mirror import served
from bench.watching.watchers import watching
from tests.real.apiserver import ApiServer
from tests.rig.certificates import Certificates

PEER = "kube-apiserver's watch of pods; for memory, our own limit"
RATIO = "ratio = peer / ours, so above 1 ours needs less"

_PODS = "/apis/metrics.nvidia.com/v1alpha1/podresources"
_GROWTH_MIB = 64.0
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class Size:
    nodes: int = 1000
    watchers: int = 200
    events: int = 200
    burst: int = 5000


QUICK = Size(nodes=10, watchers=5, events=10, burst=50)


def run(*, quick: bool = False) -> Iterable[Row]:
    size = QUICK if quick else Size()
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as folder:
        ours, latency, growth = asyncio.run(_ours(size, Certificates(Path(folder) / "certificates")))
    peer, peer_latency = _peer(size)
    case = f"{size.watchers} watchers, {size.nodes:,} nodes"
    yield Row(f"{case}: an event for a watcher", ours, peer, peer / ours, "us CPU")
    yield Row(f"{case}: all events, until all have them", latency, peer_latency, peer_latency / latency, "s")
    memory = f"{case}: memory after {size.burst:,} events"
    yield Row(memory, growth, _GROWTH_MIB, _GROWTH_MIB / max(growth, 0.1), "MiB", is_limit=True)


# -- ours


class _Server:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self.pid = process.pid

    async def answer(self) -> str:
        return (await asyncio.to_thread(self._out.readline)).strip()

    async def change(self, events: int, hurry: str = "") -> None:
        print(events, hurry, file=self._in, flush=True)
        await self.answer()


async def _ours(size: Size, certificates: Certificates) -> tuple[float, float, float]:
    """Microseconds per event and watcher, seconds until everybody has all events, and MiB of growth."""
    cluster = ClusterSize(size.nodes, size.nodes * 8, 0, 0, 0)
    identity, context = certificates.loopback_server, ssl.create_default_context(cafile=str(certificates.authority))
    files = str(identity.certificate), str(identity.key)
    with served(cluster) as url, _started(f"{url}/0/0", *files) as (server, port):
        address = f"https://127.0.0.1:{port}{_PODS}"
        await server.change(size.events)
        began = cpu_of(server.pid)
        await server.change(size.events)
        alone = cpu_of(server.pid) - began
        version = await asyncio.to_thread(_version, f"{address}?limit=1", context)
        target = f"{address}?watch=1&resourceVersion={version}"
        async with watching(target, size.watchers, context) as watchers:
            began, at = cpu_of(server.pid), asyncio.get_running_loop().time()
            await server.change(size.events)
            await watchers.have_seen(size.events)
            taken, seconds = cpu_of(server.pid) - began, asyncio.get_running_loop().time() - at
            say(f"ours: {taken:.2f} s CPU with watchers, {alone:.2f} s without")
            growth = await _growth(server, size, target, context)
    return (taken - alone) / size.events / size.watchers * 1e6, seconds, growth


def _version(url: str, context: ssl.SSLContext) -> str:
    with urlopen(url, context=context) as answer:
        return str(json.load(answer)["metadata"]["resourceVersion"])


async def _growth(server: _Server, size: Size, target: str, context: ssl.SSLContext) -> float:
    """While one more watcher does not read. The log of events fills up first, once."""
    await server.change(size.burst, "hurry")
    _, deaf = await asyncio.open_connection(*_place(target), ssl=context)
    deaf.write(f"GET {_PODS}?watch=1 HTTP/1.1\r\nhost: a\r\n\r\n".encode())
    before = _rss(server.pid)
    await server.change(size.burst, "hurry")
    after = _rss(server.pid)
    deaf.close()
    return max(0.0, after - before)


def _place(url: str) -> tuple[str, int]:
    host, _, port = url.partition("//")[2].partition("/")[0].partition(":")
    return host, int(port)


def _rss(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


@contextmanager
def _started(*arguments: str) -> Iterator[tuple[_Server, int]]:
    command, pipe = [sys.executable, "-m", "bench.watching.server", *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            port = next(line for line in process.stdout if line.strip().isdigit())  # it logs before
            yield _Server(process), int(port)
        finally:
            process.kill()


# -- the peer


def _peer(size: Size) -> tuple[float, float]:
    with ApiServer.up() as api:
        held = api.certificates
        context = ssl.create_default_context(cafile=str(held.authority))
        context.load_cert_chain(held.admin.certificate, held.admin.key)
        pid = api.control_plane.apiserver.pid
        return asyncio.run(_peer_measured(size, api.control_plane.url, pid, context))


async def _peer_measured(size: Size, url: str, pid: int, context: ssl.SSLContext) -> tuple[float, float]:
    pods = f"{url}/api/v1/namespaces/default/pods"
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        async with session.post(pods, json=body) as answer:
            assert answer.status == 201, await answer.text()

        async def change(events: int) -> str:
            version = ""
            for number in range(events):
                patch = {"metadata": {"annotations": {"told": str(number)}}}
                headers = {"Content-Type": "application/merge-patch+json"}
                async with session.patch(f"{pods}/p", data=json.dumps(patch), headers=headers) as answer:
                    version = (await answer.json())["metadata"]["resourceVersion"]
                await asyncio.sleep(_PAUSE_SECONDS)
            return version

        await change(size.events)
        began = cpu_of(pid)
        version = await change(size.events)
        alone = cpu_of(pid) - began
        async with watching(f"{pods}?watch=1&resourceVersion={version}", size.watchers, context) as watchers:
            began, at = cpu_of(pid), asyncio.get_running_loop().time()
            await change(size.events)
            await watchers.have_seen(size.events)
            taken, seconds = cpu_of(pid) - began, asyncio.get_running_loop().time() - at
    say(f"kube-apiserver: {taken:.2f} s CPU with watchers, {alone:.2f} s without")
    return (taken - alone) / size.events / size.watchers * 1e6, seconds
