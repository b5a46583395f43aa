"""Nodes that are simulated as a whole: the agent's rules without the agent's sockets, and pods that run by script."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from aliquot import agent
from aliquot.dialects import demand_of, placed_on, standard_dialects
from aliquot.embedded.api import resources
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.embedded.nodes import SCRIPT, HollowNodes
from aliquot.kube import NODES, PODS, Client
from aliquot.model import NodeGpus, Pod
from aliquot.model.load import LOAD, NodeLoad, read_load
from aliquot.model.records import INVENTORY, NODE_LEASES, PLACEMENT, read_inventory, write_inventory, write_placement
from tests.factories import pod_manifest
from tests.fakes import FakeClock, ScriptedApi, answer, cut_after, until

DIALECTS = standard_dialects()
MODELS = ("Tesla T4", "NVIDIA A10")


class Cluster:
    """Hollow nodes on an API server in the test's hand; the test is the scheduler, too."""

    def __init__(self, api: ScriptedApi, nodes: HollowNodes, clock: FakeClock) -> None:
        self.api = api
        self.nodes = nodes
        self.clock = clock
        self.cards: dict[str, NodeGpus] = {}

    async def add(self, name: str, *dialects: str) -> None:
        self.cards[name] = await self.nodes.add_simulated(name, SimulatedGpus(name, MODELS), dialects)

    def node(self, name: str) -> Any:
        return self.api.registry.get(resources.NODES, "", name).obj

    def bind(self, manifest: Mapping[str, Any], node: str, *indexes: int, script: str = "") -> str:
        """Make a pod that is bound to a node, placed on the cards of these indexes; without any, not placed."""
        pod = msgspec.convert({**manifest, "status": {}}, Pod)
        annotations = dict(pod.metadata.annotations) | ({SCRIPT: script} if script else {})
        if indexes:
            demand = demand_of(pod, DIALECTS)
            assert demand is not None
            gpus = [self.cards[node].by_index[index] for index in indexes]
            placement = placed_on(
                demand.request, {own.name: gpus for own in demand.request.containers}, self.cards[node]
            )
            own = demand.dialect.annotations(pod, demand.request, placement, self.cards[node], 1)
            annotations |= {PLACEMENT: write_placement(placement), **own}
        metadata = {**manifest["metadata"], "annotations": annotations, "namespace": "default"}
        body = {**manifest, "metadata": metadata, "spec": {**manifest["spec"], "nodeName": node}}
        self.api.registry.create(resources.PODS, "default", body)
        return pod.metadata.name

    def pod(self, name: str) -> Any:
        return self.api.registry.get(resources.PODS, "default", name).obj

    async def reaches(self, name: str, phase: str) -> Any:
        await until(lambda: self.pod(name)["status"].get("phase") == phase, f"{name} is {phase}")
        return self.pod(name)

    def warnings(self, name: str) -> list[tuple[str, str]]:
        """What the kubelet warned of."""
        found = [stored.obj for stored in self.api.store.snapshot(resources.EVENTS.collection)]
        mine = [event for event in found if event["involvedObject"]["name"] == name and event["type"] == "Warning"]
        return [(event["reason"], event["message"]) for event in mine]


@pytest.fixture
async def cluster(scripted: ScriptedApi, client: Client, clock: FakeClock) -> AsyncIterator[Cluster]:
    async with HollowNodes(client, clock=clock, dialects=DIALECTS) as nodes:
        made = Cluster(scripted, nodes, clock)
        for name in DIALECTS:
            await made.add(f"on-{name}", name)
        living = asyncio.create_task(nodes.run())
        yield made
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


# -- the node


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_node_offers_what_the_agent_would_and_publishes_its_inventory(cluster: Cluster, name: str) -> None:
    dialect = DIALECTS[name]
    await until(lambda: INVENTORY in cluster.node(f"on-{name}")["metadata"].get("annotations", {}))
    node = cluster.node(f"on-{name}")
    cards = agent.node_cards(f"on-{name}", SimulatedGpus(f"on-{name}", MODELS).read().gpus, [dialect], 1024)
    assert node["metadata"]["annotations"][INVENTORY] == write_inventory(cards)
    assert read_inventory(f"on-{name}", node["metadata"]["annotations"][INVENTORY]) == cards
    offered = node["status"]["allocatable"]
    assert offered[dialect.resource] == str(len(dialect.device_ids(dialect.resource, cards)))
    labels = node["metadata"]["labels"]
    assert labels.items() >= dict(dialect.node_labels or {f"dialect.aliquot.io/{name}": "true"}).items()


async def test_an_inventory_that_somebody_takes_away_comes_back(cluster: Cluster, client: Client) -> None:
    await until(lambda: INVENTORY in cluster.node("on-keti")["metadata"].get("annotations", {}))
    taken = {"metadata": {"annotations": {INVENTORY: None}}}
    await client.patch(NODES, "on-keti", taken)
    await until(lambda: INVENTORY in cluster.node("on-keti")["metadata"].get("annotations", {}))


# -- the hand-over


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_placed_pod_of_every_dialect_gets_its_card_and_its_mark(cluster: Cluster, name: str) -> None:
    dialect, node = DIALECTS[name], f"on-{name}"
    pod = cluster.bind(dialect.sample_pod(), node, 1)
    await cluster.reaches(pod, "Running")
    shown = cluster.pod(pod)
    read = msgspec.convert(shown, Pod)
    assert dialect.handed_over(read)
    assert dialect.is_marked(read) == bool(dialect.hand_over_marks(read, 1))
    (container,) = read.spec.containers
    found = cluster.nodes[node].kubelet.inside[read.metadata.uid, container.name]
    assert found.devices == [f"/dev/nvidia{cluster.cards[node].by_index[1].minor}", "/dev/nvidiactl"]
    assert found.environment["NVIDIA_VISIBLE_DEVICES"] == cluster.cards[node].by_index[1].uuid


async def test_a_container_without_a_placement_gets_nothing_and_its_status_says_why(cluster: Cluster) -> None:
    cluster.bind(pod_manifest("around"), "on-gpushare")
    await until(lambda: cluster.warnings("around"), "a warning", passing=cluster.clock)
    ((reason, message),) = cluster.warnings("around")
    assert reason == "Failed"
    assert "without a placement, so it gets no card" in message
    shown = cluster.pod("around")
    assert shown["status"]["phase"] == "Pending"
    assert "without a placement" in shown["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
    assert not cluster.nodes["on-gpushare"].kubelet.inside


async def test_a_placement_that_would_over_commit_a_card_is_refused_until_there_is_room(cluster: Cluster) -> None:
    cluster.bind(pod_manifest("first", 10), "on-gpushare", 0, script="runs 100s")
    await cluster.reaches("first", "Running")
    cluster.bind(pod_manifest("second", 10), "on-gpushare", 0)
    await until(lambda: cluster.warnings("second"), "a warning", passing=cluster.clock)
    assert "would over-commit this node" in cluster.warnings("second")[0][1]
    assert cluster.pod("second")["status"]["phase"] == "Pending"
    await until(lambda: cluster.pod("second")["status"]["phase"] == "Running", passing=cluster.clock)
    assert cluster.pod("first")["status"]["phase"] == "Succeeded"


async def test_a_pod_of_a_dialect_that_the_node_does_not_serve_is_not_given_its_cards(cluster: Cluster) -> None:
    """Its resource is unknown there, so kubelet starts it with nothing, as a real one does."""
    pod = cluster.bind(DIALECTS["tencent"].sample_pod(), "on-gpushare", 0)
    shown = await cluster.reaches(pod, "Running")
    found = cluster.nodes["on-gpushare"].kubelet.inside[shown["metadata"]["uid"], "nvidia"]
    assert (found.environment, found.devices) == ({}, [])


async def test_more_ids_than_the_node_has_fail_the_pod_at_admission(cluster: Cluster) -> None:
    cluster.bind(pod_manifest("greedy", 38), "on-gpushare", 0)
    shown = await cluster.reaches("greedy", "Failed")
    assert shown["status"]["reason"] == "UnexpectedAdmissionError"
    assert shown["status"]["message"] == "Requested: 38, available: 37 of aliyun.com/gpu-mem"


# -- scripts


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        pytest.param("runs 30s, uses 60%, then succeeds", "Succeeded", 0, "Completed", id="succeeds"),
        pytest.param("runs 30s, uses 60%, then fails with 137", "Failed", 137, "Error", id="fails"),
    ],
)
async def test_a_pod_runs_uses_its_card_and_ends_as_its_script_says(
    cluster: Cluster, script: str, phase: str, code: int, reason: str
) -> None:
    cluster.bind(pod_manifest("job"), "on-gpushare", 0, script=script)
    shown = await cluster.reaches("job", "Running")
    kubelet = cluster.nodes["on-gpushare"].kubelet
    await until(lambda: kubelet.uses == {shown["metadata"]["uid"]: 60})
    await until(lambda: cluster.clock.sleeping, "the job runs")
    await cluster.clock.move(29)
    assert cluster.pod("job")["status"]["phase"] == "Running"
    await cluster.clock.move(1)
    shown = await cluster.reaches("job", phase)
    (status,) = shown["status"]["containerStatuses"]
    assert (status["state"].keys(), status["state"]["terminated"]["exitCode"]) == ({"terminated"}, code)
    assert status["state"]["terminated"]["reason"] == reason
    assert kubelet.uses == {}


async def test_without_a_script_a_pod_runs_until_it_is_deleted(cluster: Cluster, client: Client) -> None:
    cluster.bind(pod_manifest("service"), "on-gpushare", 0)
    await cluster.reaches("service", "Running")
    await client.delete(PODS, "service", "default")
    await until(lambda: not cluster.api.store.snapshot(resources.PODS.collection))
    assert not cluster.nodes["on-gpushare"].kubelet.inside


async def test_a_script_that_cannot_be_read_fails_the_pod_with_what_to_write(cluster: Cluster) -> None:
    cluster.bind(pod_manifest("typo"), "on-gpushare", 0, script="run 30 seconds")
    shown = await cluster.reaches("typo", "Failed")
    assert shown["status"]["reason"] == "BadScript"
    assert "write for example: runs 30s, uses 60%, then succeeds" in shown["status"]["message"]
    await until(lambda: cluster.warnings("typo"))


async def test_a_pod_s_end_reaches_an_api_server_that_fails_for_a_while(cluster: Cluster) -> None:
    cluster.bind(pod_manifest("job"), "on-gpushare", 0, script="runs 5s, then succeeds")
    await cluster.reaches("job", "Running")
    await until(lambda: cluster.clock.sleeping)
    cluster.api.script("PATCH", "/pods/job/status", answer(500), answer(409), answer(429), cut_after)
    await until(lambda: cluster.pod("job")["status"]["phase"] == "Succeeded", passing=cluster.clock)


# -- many


async def test_hundreds_of_nodes_share_two_watches_and_run_their_pods(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    async with HollowNodes(client, clock=clock, dialects=DIALECTS) as nodes:
        cluster = Cluster(scripted, nodes, clock)
        for number in range(200):
            await cluster.add(f"n{number}", "gpushare")
        living = asyncio.create_task(nodes.run())
        for number in range(200):
            cluster.bind(pod_manifest(f"p{number}"), f"n{number}", 0)
        for number in range(200):
            await cluster.reaches(f"p{number}", "Running")
        await until(lambda: len({seen.path for seen in scripted.seen if "watch=" in seen.query}) == 2, "two watches")
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
    assert sum("watch=" in seen.query for seen in scripted.seen) == 2


# -- cards that change


async def test_a_card_that_fails_is_no_longer_offered_and_returns(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    gpus = SimulatedGpus("n1", MODELS)
    first, _ = gpus.read().gpus
    async with HollowNodes(client, clock=clock, dialects=DIALECTS) as nodes:
        cluster = Cluster(scripted, nodes, clock)
        cluster.cards["n1"] = await nodes.add_simulated("n1", gpus, ["gpushare"])
        living = asyncio.create_task(nodes.run())

        def shown() -> tuple[str, list[bool]]:
            node = cluster.node("n1")
            inventory = node["metadata"].get("annotations", {}).get(INVENTORY)
            cards = read_inventory("n1", inventory).gpus if inventory else ()
            return node["status"]["allocatable"]["aliyun.com/gpu-mem"], [gpu.healthy for gpu in cards]

        await until(lambda: shown() == ("37", [True, True]))
        cluster.bind(pod_manifest("before"), "n1", 0)
        await cluster.reaches("before", "Running")
        gpus.fail(first.uuid, "XID 79")
        await until(lambda: shown() == ("22", [False, True]))
        cluster.bind(pod_manifest("after"), "n1", 0)
        await until(lambda: cluster.warnings("after"), "a warning", passing=clock)
        assert f"card {first.uuid} of the placement is unhealthy" in cluster.warnings("after")[0][1]
        assert cluster.pod("before")["status"]["phase"] == "Running"
        gpus.recover(first.uuid)
        await until(lambda: shown() == ("37", [True, True]))
        await until(lambda: cluster.pod("after")["status"]["phase"] == "Running", passing=clock)
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


# -- the load


async def test_a_simulated_node_tells_in_its_lease_what_its_pods_use(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NODE_LEASES}})
    async with HollowNodes(client, clock=clock, dialects=DIALECTS, with_leases=True) as nodes:
        cluster = Cluster(scripted, nodes, clock)
        await cluster.add("n1", "gpushare")
        living = asyncio.create_task(nodes.run())
        cluster.bind(pod_manifest("job"), "n1", 0, script="runs for ever, uses 60%")
        uid = (await cluster.reaches("job", "Running"))["metadata"]["uid"]
        card = cluster.cards["n1"].by_index[0]

        def load() -> NodeLoad | None:
            found = [stored.obj for stored in scripted.store.snapshot(resources.LEASES.collection)]
            texts = [lease["metadata"].get("annotations", {}).get(LOAD) for lease in found]
            return read_load(texts[0]) if texts and texts[0] else None

        await until(
            lambda: (known := load()) is not None and uid in known.pods, passing=clock, between_calls_of=scripted
        )
        known = load()
        assert known is not None
        assert known.cards[card.uuid].cores == 0.6
        assert known.pods[uid][card.uuid].cores == 0.6
        assert known.pods[uid][card.uuid].memory_bytes == known.cards[card.uuid].memory_bytes
        await client.delete(PODS, "job", "default")
        await until(lambda: (known := load()) is not None and not known.pods, passing=clock, between_calls_of=scripted)
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
