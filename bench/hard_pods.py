"""One user's hard pods, and everybody else's: a pod of twelve containers that only a search places comes each second
for a minute, from one namespace, to 100 nodes that are all filled in another way. Two servers run, of which one leads.

Beside it small pods are made, asked for and bound as fast as it goes, and /healthz is asked twenty times a second.
"""

import asyncio
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from aliquot.kube import LEASES, Client
from aliquot.kube.access import from_kubeconfig
from bench.extending import processes
from bench.measuring import Row
from bench.searching.scheduler import Scheduling, Seen
from tests.ports import free_port
from tests.rig.network import LOOPBACK

PEER = "the same server a moment before and after, without hard pods"
RATIO = "ratio = ours / peer: of pods bound 1 is as usual; a failover is a term of leadership that ended"

_CALLERS = 4


@dataclass(frozen=True)
class Size:
    nodes: int = 100
    quiet: float = 20.0
    hard: float = 60.0


QUICK = Size(nodes=4, quiet=1.0, hard=3.0)


def run(*, quick: bool = False) -> Iterable[Row]:
    size = QUICK if quick else Size()
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as made, ExitStack() as stack:
        folder = Path(made)
        kubeconfig = stack.enter_context(processes.cluster(size.nodes, folder, "bench.searching.cluster"))
        health = free_port()
        leader = stack.enter_context(processes.ours(kubeconfig, folder, f"--health-port={health}"))
        stack.enter_context(processes.ours(kubeconfig, folder, name="follower"))
        urls = f"http://{LOOPBACK}:{leader.port}", f"http://{LOOPBACK}:{health}"
        quiet, hard, failovers = asyncio.run(_watch(kubeconfig, *urls, size))
    rate = sum(seen.rate for seen in quiet) / len(quiet)
    usual = max(max(seen.probes) for seen in quiet)
    yield Row("other pods bound", hard.rate, rate, hard.rate / rate, "pods a second")
    yield Row("longest answer of /healthz", max(hard.probes) * 1e3, usual * 1e3, max(hard.probes) / usual, "ms")
    yield Row("hard pods bound, of those sent", hard.hard_bound, hard.hard_asked, hard.hard_bound / hard.hard_asked, "")
    yield Row("failovers", failovers, 1, failovers, "")


async def _watch(kubeconfig: Path, endpoint: str, health: str, size: Size) -> tuple[list[Seen], Seen, int]:
    async with Client(from_kubeconfig(kubeconfig)) as client, aiohttp.ClientSession() as session:
        nodes = [f"n{number:03}" for number in range(size.nodes)]
        scheduling = Scheduling(client, session, endpoint, health, nodes)
        before = await _transitions(client)
        await scheduling.watch(size.quiet / 4, hard=False, callers=_CALLERS)  # it warms up
        first = await scheduling.watch(size.quiet, hard=False, callers=_CALLERS)
        hard = await scheduling.watch(size.hard, hard=True, callers=_CALLERS)
        last = await scheduling.watch(size.quiet, hard=False, callers=_CALLERS)
        return [first, last], hard, await _transitions(client) - before


async def _transitions(client: Client) -> int:
    lease = await client.get(LEASES, "aliquot-server", "aliquot-system")
    return lease.spec.lease_transitions or 0
