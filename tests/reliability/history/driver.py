"""One history: chaos and rest in turn, until the time is over or something is wrong."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from aliquot.app.demo import admission, namespaces
from aliquot.config.sections.replicas import LeaseSection
from aliquot.dialects import standard_dialects
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import kubeconfig
from aliquot.kube import Access, Client
from aliquot.model.records import NODE_LEASES
from tests.reliability.history.callers import Caller
from tests.reliability.history.clocks import MovedClock
from tests.reliability.history.figures import Figures, Violation
from tests.reliability.history.gate import Gate
from tests.reliability.history.kubelets import Kubelets, Users
from tests.reliability.history.rest import Rest
from tests.reliability.history.setups import SETUPS
from tests.reliability.history.story import Story
from tests.reliability.history.troubles import Troubles
from tests.reliability.history.world import OBSERVER, Replica, World
from tests.reliability.servers import Server

_ENDPOINTS = ("admission", "elastic", "gpushare", "native", "nvidia")
_REPLICAS = 2


async def run(
    folder: Path,
    setup: str,
    seed: int,
    seconds: float,
    *,
    tree: Path | None = None,
    without: Collection[str] = (),
    keep_going: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Figures:
    """`tree` is another source tree, whose servers are tried; `without` are troubles that are left out. Without
    `keep_going`, the first violation ends it."""
    chance, figures, story = Random(seed), Figures(), Story()
    troubles = {kind: weight for kind, weight in SETUPS[setup].troubles.items() if kind not in without}
    chosen = replace(SETUPS[setup], troubles=troubles)
    gate = Gate(Random(seed), chosen.acts_within, story, figures)
    async with EmbeddedCluster(middlewares=[gate.middleware]) as cluster:
        await _install(cluster)
        world = World(chosen, chance, story, figures, gate, cluster, chosen.machines())
        async with _servers(world, folder, tree), asyncio.TaskGroup() as tasks:
            acting = [tasks.create_task(work) for work in _actors(world)]
            try:
                await _histories(world, seconds, keep_going, progress)
            finally:
                for task in acting:
                    task.cancel()
    figures.seconds = story.now
    for kind, count in cluster.faults.counts.items():
        figures.counts[f"API server: {kind}"] = count
    return figures


def _actors(world: World) -> Iterator[Coroutine[Any, Any, None]]:
    yield from (Caller(world).run() for _ in range(world.setup.callers))
    yield Users(world).run()
    yield Kubelets(world).run()
    yield _lag(world)


async def _histories(world: World, seconds: float, keep_going: bool, progress: Callable[[str], None]) -> None:
    troubles, rest = Troubles(world), Rest(world)
    told = 0
    while True:
        left = seconds - world.story.now
        world.is_calm = False
        await troubles.run(min(world.setup.chaos, max(1.0, left)))
        world.is_calm = True
        await troubles.settle()
        await rest.check()
        found = world.figures.violations[told:]
        told += len(found)
        for violation in found:
            progress(str(violation))
        counts = world.figures.counts
        progress(
            f"{world.story.now / 60:.1f} min, {counts['pods']} pods, {counts['trouble: kill']} kills, {told} violations"
        )
        if (found and not keep_going) or world.story.now >= seconds:
            return
        if found:
            await _heal(world, found)


async def _heal(world: World, found: list[Violation]) -> None:
    """So that later violations are new ones."""
    for pod in list(world.witness.pods.values()):
        world.delete_pod(pod, 0)
    for replica in world.replicas:
        replica.is_ending = True
        await replica.server.kill()
        replica.is_ending = False
        replica.server.start()
    world.story.tell(f"all pods are deleted and all servers started anew after {len(found)} violations")


async def _lag(world: World) -> None:
    """How late this process is at most: it is the API server, too."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.1)
        late = int((time.monotonic() - before - 0.1) * 1000)
        if late > world.figures.counts["longest stall of the driver, ms"]:
            world.figures.counts["longest stall of the driver, ms"] = late
        if late > 1000:
            world.story.tell(f"the driver stood still for {late} ms")


async def _install(cluster: EmbeddedCluster) -> None:
    """Aliquot's namespaces, policies and account."""
    home = LeaseSection().namespace
    async with Client(Access(cluster.url)) as admin:
        for namespace in (home, NODE_LEASES):
            await namespaces.ensure(admin, namespace)
        await admission.install(admin, standard_dialects(), home)


@asynccontextmanager
async def _servers(world: World, folder: Path, tree: Path | None) -> AsyncIterator[None]:
    world.replicas += [_replica(world, folder, tree, f"server-{number}") for number in range(_REPLICAS)]
    observing = {"MODE": "observe"}
    world.observers += [
        _replica(world, folder, tree, f"{OBSERVER}-{number}", observing) for number in range(world.setup.observers)
    ]
    everyone = [*world.replicas, *world.observers]
    try:
        for replica in everyone:
            replica.server.start()
        yield
    finally:
        for replica in everyone:
            process = replica.server.process
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def _replica(
    world: World, folder: Path, tree: Path | None, name: str, settings: Mapping[str, str] | None = None
) -> Replica:
    token = admission.access(world.cluster, LeaseSection().namespace, admission.SERVER).token or ""
    world.gate.names[token] = name
    config, clock = folder / f"{name}.kubeconfig", MovedClock(folder / f"{name}.clock")
    kubeconfig.write(world.cluster.url, config, token)
    given = {**world.setup.times, **(settings or {})}
    return Replica(Server(name, config, folder, given, _ENDPOINTS, clock.environment(tree)), clock)
