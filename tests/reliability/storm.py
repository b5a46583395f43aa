"""Everything at once: conflicts, errors, lost answers, dropped watches and an outage, while pods are placed."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliquot.app.demo import admission, namespaces
from aliquot.config.sections.replicas import LeaseSection
from aliquot.dialects import standard_dialects
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import resources
from aliquot.embedded.api.faults import Faults
from aliquot.embedded.api.identity import account
from aliquot.kube import Access, Client
from aliquot.model.records import NODE_LEASES
from tests.checker import Cluster, unplaced
from tests.reliability import load
from tests.reliability.scheduler import Scheduler
from tests.reliability.servers import replicas

WEATHER = Faults(conflicts=0.10, errors=0.05, lost_answers=0.05, drop_watches_each=1.0, seed=1)
LONGEST = 600.0


@dataclass(frozen=True)
class Outcome:
    pods: int
    seconds: float
    injected: dict[str, int]
    findings: list[str]

    def __str__(self) -> str:
        return f"{self.pods} pods in {self.seconds:.0f} s, {self.injected}: {self.findings or 'nothing is wrong'}"


async def weather(folder: Path, *, pods: int, outage: float) -> Outcome:
    """Place pods by two servers in bad weather; the outage comes when a third of them is bound."""
    async with EmbeddedCluster() as cluster:
        kubeconfig = await prepare(cluster, folder)
        names = fill(cluster, pods)
        cluster.faults.set(WEATHER)
        began = time.monotonic()
        with replicas(2, kubeconfig, folder) as servers:
            async with Scheduler(Access(cluster.url), [server.url for server in servers]) as scheduler:
                await scheduler.until_bound(pods // 3, LONGEST)
                cluster.faults.outage(outage)
                await scheduler.until_bound(pods, LONGEST)
        took = time.monotonic() - began
        return Outcome(pods, took, dict(cluster.faults.counts), verdict(cluster, names))


async def prepare(cluster: EmbeddedCluster, folder: Path) -> Path:
    """Install Aliquot with its policies; returns the server's own kubeconfig."""
    home, path = LeaseSection().namespace, folder / "kubeconfig"
    async with Client(Access(cluster.url)) as admin:
        for namespace in (home, NODE_LEASES):
            await namespaces.ensure(admin, namespace)
        await admission.install(admin, standard_dialects(), home)
    admission.access(cluster, home, admission.SERVER)
    cluster.write_kubeconfig(path, user=account(home, admission.SERVER))
    return path


def fill(cluster: EmbeddedCluster, count: int, *, pods: int | None = None) -> list[str]:
    """Nodes for so many pods, and these pods, or fewer, which wait; returns their names."""
    for node in load.nodes(load.nodes_for(count)):
        cluster.registry.create(resources.NODES, "", node)
    return add_pods(cluster, count if pods is None else pods)


def add_pods(cluster: EmbeddedCluster, count: int, prefix: str = "load") -> list[str]:
    made = list(load.pods(count, prefix=prefix))
    for pod in made:
        cluster.registry.create(resources.PODS, "default", pod)
    return [f"default/{pod['metadata']['name']}" for pod in made]


def verdict(cluster: EmbeddedCluster, names: list[str]) -> list[str]:
    def objects(resource: resources.WritableResource) -> list[dict[str, Any]]:
        return [stored.obj for stored in cluster.store.snapshot(resource.collection)]

    return unplaced(Cluster(objects(resources.PODS), objects(resources.NODES)), names)
