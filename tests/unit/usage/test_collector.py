"""From a reading of the cards to what each container uses, and to the load record."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import msgspec
import pytest

from aliquot.agent.devices import GpuProcess, Machine, Processes, Usage
from aliquot.agent.node_pods import NodePod
from aliquot.agent.usage import Collected, Collector, Owner, Part
from aliquot.agent.usage.cgroups import Container
from aliquot.agent.usage.shares import Share
from aliquot.model.load import CardLoad, NodeLoad, PodLoad
from tests.factories import pod_manifest
from tests.fakes import FakeClock

GPU, OTHER = "GPU-1", "GPU-2"


def make_pod(name: str, *containers: str, phase: str = "Running", state: str = "running") -> NodePod:
    manifest: dict[str, Any] = pod_manifest(name)
    manifest["metadata"]["uid"] = f"uid-{name}"
    manifest["status"] = {
        "phase": phase,
        "containerStatuses": [
            {"name": container, "containerID": f"containerd://{container}-id", "state": {state: {}}}
            for container in containers
        ],
    }
    return msgspec.convert(manifest, NodePod)


def process(pid: int, memory: int, cores: float) -> GpuProcess:
    return GpuProcess(pid, memory, cores, sampled_since=math.inf)


def owner(pod: str, container: str) -> Owner:
    return Owner(Container(f"uid-{pod}", f"{container}-id"))


class Node:
    """A node whose cards, processes and pods a test changes."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.pods: list[NodePod] = []
        self.parts: list[Part] = []
        self.owners: Mapping[int, Owner] | None = {}
        self.asked = 0
        """How often owners were looked up."""
        self.collector = Collector(Machine(()), self, lambda: self.pods, lambda: self.parts, self.clock)

    @property
    def collected(self) -> Collected:
        return self.collector.current()

    def of(self, cards: Iterable[Processes]) -> Mapping[int, Owner] | None:
        self.asked += 1
        known = self.owners
        pids = [process.pid for card in cards for process in card.running]
        return None if known is None else {pid: known[pid] for pid in pids if pid in known}

    async def read(self, usage: Mapping[str, Usage] | None) -> dict[tuple[str, str, str], Share]:
        self.collector.see_machine(None if usage is None else Machine((), usage=usage))
        await self.collector.collect()
        return {(use.pod.metadata.name, use.container, use.uuid): use.share for use in self.collected.uses}


_moments = count(1.0)
"""When the driver was asked: never twice at once."""


def card(*running: GpuProcess, cores: float | None = 0.5, joules: float | None = None) -> Usage:
    processes = Processes(next(_moments), running)
    return Usage(cores=cores, memory_bytes=999, watts=70.0, joules=joules, processes=processes)


@pytest.fixture
def node() -> Node:
    return Node()


async def test_two_containers_on_one_card_are_told_apart(node: Node) -> None:
    node.pods = [make_pod("a", "main", "side"), make_pod("b", "main2")]
    node.owners = {1: owner("a", "main"), 2: owner("a", "side"), 3: owner("b", "main2"), 4: owner("gone", "main")}
    shown = await node.read(
        {GPU: card(process(1, 10, 0.125), process(2, 20, 0.25), process(3, 30, 0.3), process(4, 40, 0.4))}
    )
    assert shown == {
        ("a", "main", GPU): Share(10, 0.125),
        ("a", "side", GPU): Share(20, 0.25),
        ("b", "main2", GPU): Share(30, 0.3),
    }
    assert node.collected.knows_owners
    assert node.collector.load() == NodeLoad(
        node.clock.wall_ns() / 1e9,
        {GPU: CardLoad(0.5, 999, 70.0)},
        {"uid-a": {GPU: PodLoad(30, 0.375)}, "uid-b": {GPU: PodLoad(30, 0.3)}},
    )


async def test_a_container_with_a_part_is_no_server_of_mps(node: Node) -> None:
    node.pods = [make_pod("a", "main"), make_pod("b", "main2")]
    node.parts = [Part("uid-a", "main", GPU), Part("uid-b", "main2", GPU)]
    node.owners = {1: owner("a", "main"), 2: replace(owner("b", "main2"), name="mps")}
    client = GpuProcess(1, 10, 0.0, sampled_since=math.inf, is_mps_client=True)
    running = Processes(next(_moments), (client, process(2, 20, 0.6)), "mps")

    shown = await node.read({GPU: Usage(cores=0.6, processes=running)})

    assert shown == {("a", "main", GPU): Share(10, 0.0), ("b", "main2", GPU): Share(20, 0.6)}


async def test_a_container_with_a_card_and_no_process_uses_nothing(node: Node) -> None:
    node.pods = [make_pod("a", "main")]
    node.parts = [Part("uid-a", "main", GPU, 50, 100), Part("uid-a", "init", GPU), Part("uid-gone", "main", GPU)]
    assert await node.read({GPU: card()}) == {("a", "main", GPU): Share(0, 0.0)}
    assert node.collected.uses[0].part == node.parts[0]
    assert await node.read({GPU: card(cores=None)}) == {("a", "main", GPU): Share(0, None)}


@pytest.mark.parametrize(
    "ended",
    [
        [],
        [make_pod("a", "main", phase="Succeeded", state="terminated")],
        [make_pod("a", "main", state="terminated")],
        [make_pod("a", "main", state="waiting")],
    ],
    ids=["deleted", "succeeded", "its container has ended", "its container waits for its next start"],
)
async def test_what_an_ended_pod_used_is_not_shown_as_living(node: Node, ended: list[NodePod]) -> None:
    node.pods, node.owners = [make_pod("a", "main")], {1: owner("a", "main")}
    node.parts = [Part("uid-a", "main", GPU)]
    usage = {GPU: card(process(1, 10, 0.1))}
    assert await node.read(usage) != {}
    node.pods = ended
    assert node.collected.uses == [], "at once, and not with the next reading"
    assert await node.read(usage) == {}
    load = node.collector.load()
    assert load is not None
    assert load.pods == {}


async def test_a_container_that_started_again_is_another_one_for_its_energy(node: Node) -> None:
    node.pods, node.owners = [make_pod("a", "main")], {1: owner("a", "main")}
    await node.read({GPU: card(process(1, 10, 0.5), joules=100)})
    await node.read({GPU: card(process(1, 10, 0.5), joules=200)})
    assert [use.joules for use in node.collected.uses] == [50.0]
    pods, node.pods = node.pods, []
    await node.read({GPU: card(process(1, 10, 0.5), joules=300)})
    node.pods = pods
    await node.read({GPU: card(process(1, 10, 0.5), joules=400)})
    assert [use.joules for use in node.collected.uses] == [50.0], "what it used while nobody saw it is lost"


async def test_a_card_that_does_not_answer_and_a_missing_driver_tell_nothing(node: Node) -> None:
    node.pods, node.owners = [make_pod("a", "main")], {1: owner("a", "main")}
    node.parts = [Part("uid-a", "main", GPU), Part("uid-a", "main", OTHER)]
    assert await node.read({OTHER: card()}) == {("a", "main", OTHER): Share(0, 0.0)}
    assert await node.read(None) == {}
    assert node.collector.load() == NodeLoad(node.clock.wall_ns() / 1e9)


@pytest.mark.parametrize("usage", [card(), Usage(cores=0.5)], ids=["no host", "the driver lists no processes"])
async def test_an_agent_that_sees_no_processes_says_nothing_of_containers(node: Node, usage: Usage) -> None:
    node.pods, node.owners = [make_pod("a", "main")], None
    node.parts = [Part("uid-a", "main", GPU)]
    assert await node.read({GPU: usage}) == {}
    assert not node.collected.knows_owners
    load = node.collector.load()
    assert load is not None
    assert list(load.cards) == [GPU]
    assert not load.pods


async def test_a_pod_whose_cores_are_partly_unknown_or_estimated(node: Node) -> None:
    node.pods = [make_pod("a", "main", "side")]
    node.owners = {1: owner("a", "main"), 2: owner("a", "side")}
    await node.read({GPU: card(GpuProcess(1, 30), GpuProcess(2, 10), cores=0.5)})
    load = node.collector.load()
    assert load is not None
    assert load.pods == {"uid-a": {GPU: PodLoad(40, 0.5, estimated=True)}}
    await node.read({GPU: card(GpuProcess(1, 30), GpuProcess(2, 10), cores=None)})
    load = node.collector.load()
    assert load is not None
    assert load.pods == {"uid-a": {GPU: PodLoad(40, None)}}


def test_there_is_no_load_before_the_first_collection(node: Node) -> None:
    assert node.collector.load() is None


async def test_nothing_is_looked_up_until_the_driver_is_asked_again(node: Node) -> None:
    node.pods, node.owners = [make_pod("a", "main")], {1: owner("a", "main")}
    usage = {GPU: card(process(1, 10, 0.5))}
    assert await node.read(usage) == await node.read(usage) == {("a", "main", GPU): Share(10, 0.5)}
    assert node.asked == 1
    assert await node.read(None) == {}
    assert await node.read(usage) != {}
    assert node.asked == 2


async def test_the_next_start_of_a_container_does_not_inherit_what_the_last_one_used(node: Node) -> None:
    node.pods, node.owners = [make_pod("a", "main")], {1: owner("a", "main")}
    await node.read({GPU: card(process(1, 10, 0.5))})
    text = msgspec.json.encode(node.pods[0]).replace(b"main-id", b"other-id")
    node.pods = [msgspec.json.decode(text, type=NodePod)]
    assert node.collected.uses == []
