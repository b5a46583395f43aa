"""Two servers on a real API server under load: the leader is killed, or paused for longer than its Lease."""

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.control.admission import STALE_EPOCH
from aliquot.kube import from_kubeconfig
from tests.checker import Cluster, epochs, unplaced
from tests.e2e import pods
from tests.reliability import load
from tests.reliability.scheduler import Scheduler
from tests.reliability.servers import Server, replicas
from tests.rig import Rig
from tests.rig.aliquot import Aliquot
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e]

PODS = 300
DURATION = 5
LEASE = {"LEASE_DURATION": str(DURATION), "LEASE_RENEW": "4", "LEASE_RETRY": "0.5"}
LONGEST = 180.0
POLICIES = Path(__file__).parents[2] / "deploy" / "policies.yaml"


@pytest.fixture
def names(rig: Rig, aliquot: Aliquot) -> Iterator[list[str]]:
    """A cluster of node objects with policies, its usual server away, and pods that wait."""
    aliquot.server.stop()
    rig.apply(POLICIES)
    nodes = load.nodes(load.nodes_for(PODS))
    waiting = list(load.pods(PODS))
    pods.create(rig, nodes)
    pods.create(rig, waiting)
    yield [f"default/{pod['metadata']['name']}" for pod in waiting]
    rig.kubectl("delete", "-f", str(POLICIES))
    rig.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
    rig.kubectl("delete", "nodes", *(node["metadata"]["name"] for node in nodes))
    aliquot.start_server()


def kubeconfig(rig: Rig) -> Path:
    return rig.service_account_kubeconfig("aliquot-system", "aliquot-server")


def holder(rig: Rig, servers: list[Server]) -> Server | None:
    path = "jsonpath={.spec.holderIdentity}"
    lease = ("get", "lease", "aliquot-server", "--namespace=aliquot-system", "--output", path)
    held_by = rig.kubectl(*lease, check=False)
    by_process = {f"_{server.process.pid}_": server for server in servers if server.process is not None}
    return next((server for mark, server in by_process.items() if mark in held_by), None)


async def eventually(what: str, condition: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(LONGEST):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"never happened: {what}")


def leads(server: Server) -> bool:
    return '"event": "became the leader"' in server.log.read_text()


def verdict(rig: Rig, names: list[str]) -> list[str]:
    def objects(kind: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(rig.kubectl("get", kind, "--output=json"))["items"]
        return listed

    return unplaced(Cluster(objects("pods"), objects("nodes")), names)


async def under_load(
    rig: Rig, servers: list[Server], what: Callable[[Scheduler], Awaitable[float]]
) -> tuple[float, Scheduler]:
    """Do something to the leader when a fifth of the pods is bound; returns its moment when all are bound."""
    access = from_kubeconfig(rig.admin_kubeconfig)
    async with Scheduler(access, [server.url for server in servers]) as scheduler:
        await scheduler.until_bound(PODS // 5, LONGEST)
        moment = await what(scheduler)
        await scheduler.until_bound(PODS, LONGEST)
        return moment, scheduler


def current_term(rig: Rig) -> int:
    path = "jsonpath={.data.epoch}"
    return int(rig.kubectl("get", "configmap", "aliquot-epoch", "--namespace=aliquot-system", "--output", path))


def takeover(rig: Rig, scheduler: Scheduler, moment: float, term: int) -> float:
    """Seconds from a moment to the first Binding that was accepted in a later term."""
    listed = json.loads(rig.kubectl("get", "pods", "--output=json"))["items"]
    first = scheduler.accepted_in(epochs(listed), term)
    assert first is not None, "a later term has bound pods"
    return first - moment


async def test_a_leader_is_killed(rig: Rig, names: list[str], tmp_path: Path, progress: Callable[[str], None]) -> None:
    with replicas(2, kubeconfig(rig), tmp_path, LEASE) as servers:
        wait_for("a leader", lambda: any(map(leads, servers)), seconds=60)
        term = current_term(rig)

        async def kill(_: Scheduler) -> float:
            leader = holder(rig, servers)
            assert leader is not None
            await leader.kill()
            return time.monotonic()

        killed, scheduler = await under_load(rig, servers, kill)
    assert verdict(rig, names) == []
    gap = takeover(rig, scheduler, killed, term)
    progress(f"{gap:.1f} s from the kill to the first accepted Binding of the next term, with a Lease of {DURATION} s")
    assert gap <= 2 * DURATION, "takeover within two lease durations"


async def test_a_leader_is_stopped_for_longer_than_its_lease_and_goes_on(
    rig: Rig, names: list[str], tmp_path: Path
) -> None:
    with replicas(2, kubeconfig(rig), tmp_path, LEASE) as servers:
        wait_for("a leader", lambda: any(map(leads, servers)), seconds=60)
        term = current_term(rig)

        async def pause(scheduler: Scheduler) -> float:
            leader = holder(rig, servers)
            assert leader is not None
            leader.send(signal.SIGSTOP)
            stopped = time.monotonic()
            (other,) = (server for server in servers if server is not leader)
            scheduler.urls.remove(leader.url)
            await eventually("the other leads", lambda: leads(other))
            scheduler.urls.append(leader.url)
            leader.send(signal.SIGCONT)
            return stopped

        stopped, scheduler = await under_load(rig, servers, pause)
    assert verdict(rig, names) == []
    assert takeover(rig, scheduler, stopped, term) <= 2 * DURATION


async def test_a_binding_that_a_paused_leader_sends_when_it_wakes_is_refused_by_the_api_server(
    rig: Rig, names: list[str], tmp_path: Path
) -> None:
    """Stopped between its claim and its Binding: the worst moment."""
    with replicas(2, kubeconfig(rig), tmp_path, LEASE) as (first, second):
        await first.kill()
        await second.kill()
        first.log.write_text("")  # of its first life
        first.start(fault="after-claim:stop")
        wait_for("the first leads", lambda: leads(first), seconds=60)
        second.start()
        async with Scheduler(from_kubeconfig(rig.admin_kubeconfig), [first.url, second.url]) as scheduler:
            await eventually("the first stands still with a claim", first.is_stopped)
            scheduler.urls.remove(first.url)
            await scheduler.until_bound(PODS // 3, LONGEST)
            first.send(signal.SIGCONT)
            await scheduler.until_bound(PODS, LONGEST)
            await eventually("the API server refuses the late Binding", lambda: STALE_EPOCH in first.log.read_text())
    assert verdict(rig, names) == []
