"""SIGKILL of whoever leads, at random moments while pods are bound, again and again."""

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.faults import Faults
from aliquot.kube import Access
from tests.checker import epochs
from tests.reliability.scheduler import Scheduler
from tests.reliability.servers import Server, replicas
from tests.reliability.storm import LONGEST, add_pods, fill, prepare, verdict

_EACH_ROUND = 20
_LIVE = 60
"""So many pods stay; older ones are deleted, so that parts are released and sold again."""
_LATENCY = Faults(latency=(0.0, 0.03))
"""Long enough for a Binding to be on its way when the kill comes."""


@dataclass
class Outcome:
    kills: int = 0
    pods: int = 0
    gaps: list[float] = field(default_factory=list)
    """Seconds from each kill to the first accepted Binding of the next term."""
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        gaps = sorted(self.gaps)
        middle, worst = gaps[len(gaps) // 2], gaps[-1]
        found = "; ".join(self.findings) or "nothing is wrong"
        return f"{self.kills} kills, {self.pods} pods, gap median {middle:.1f} s, longest {worst:.1f} s: {found}"


async def kill_leaders(
    folder: Path, count: int, *, seed: int = 0, progress: Callable[[str], None] = lambda _: None
) -> Outcome:
    chance, outcome = random.Random(seed), Outcome()
    async with EmbeddedCluster() as cluster:
        kubeconfig = await prepare(cluster, folder)
        names = fill(cluster, _LIVE + _EACH_ROUND, pods=0)
        cluster.faults.set(_LATENCY)
        with replicas(2, kubeconfig, folder) as servers:
            urls = [server.url for server in servers]
            async with Scheduler(Access(cluster.url), urls) as scheduler:
                for number in itertools.count():
                    names += add_pods(cluster, _EACH_ROUND, f"round-{number:04}")
                    await _round(cluster, servers, scheduler, chance, outcome)
                    outcome.findings += verdict(cluster, names)
                    names = _forget_some(cluster, names, chance)
                    progress(f"{outcome.kills} of {count} kills")
                    if outcome.findings or outcome.kills >= count:
                        break
    return outcome


async def _round(
    cluster: EmbeddedCluster, servers: list[Server], scheduler: Scheduler, chance: random.Random, outcome: Outcome
) -> None:
    """A kill counts if it came while Bindings were on their way or still to be sent."""
    before, leader = scheduler.bound, await holder(cluster, servers)
    await scheduler.until_bound(before + chance.randint(1, _EACH_ROUND // 2), LONGEST)
    await asyncio.sleep(chance.uniform(0.0, 0.02))  # any moment is as good as another
    term = max(_epochs(cluster).values())
    await leader.kill()
    killed, unbound = time.monotonic(), _unbound(cluster)
    leader.start()
    await scheduler.until_bound(before + _EACH_ROUND, LONGEST)
    outcome.pods += _EACH_ROUND
    if unbound:
        outcome.kills += 1
        first = scheduler.accepted_in(_epochs(cluster), term)
        if first is not None:  # otherwise everything was on its way, and the dead leader's
            outcome.gaps.append(first - killed)


def _unbound(cluster: EmbeddedCluster) -> int:
    pods = cluster.store.snapshot(resources.PODS.collection)
    return sum(1 for stored in pods if not stored.obj["spec"].get("nodeName"))


def _epochs(cluster: EmbeddedCluster) -> dict[str, int]:
    return epochs(stored.obj for stored in cluster.store.snapshot(resources.PODS.collection))


async def holder(cluster: EmbeddedCluster, servers: list[Server]) -> Server:
    """Who holds the Lease; an identity has the process id in it."""
    async with asyncio.timeout(LONGEST):
        while True:
            stored = cluster.store.get(resources.LEASES.collection, ("aliquot-system", "aliquot-server"))
            held_by = (stored.obj["spec"].get("holderIdentity") or "") if stored else ""
            for server in servers:
                if server.process is not None and f"_{server.process.pid}_" in held_by:
                    return server
            await asyncio.sleep(0.05)


def _forget_some(cluster: EmbeddedCluster, names: list[str], chance: random.Random) -> list[str]:
    gone = set(chance.sample(names, max(0, len(names) - _LIVE)))
    for name in gone:
        namespace, _, pod = name.partition("/")
        cluster.registry.delete(resources.PODS, namespace, pod, DeleteRequest(grace_seconds=0))
    return [name for name in names if name not in gone]
