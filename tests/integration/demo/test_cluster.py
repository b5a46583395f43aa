"""The demo's demo: everything real but the API server, the kubelets, the cards and the containers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from aliquot.app.demo import samples
from aliquot.app.demo.cluster import DemoCluster
from aliquot.app.demo.machines import Machine
from aliquot.app.demo.run import SamplesDoNotRun, until_samples_run
from aliquot.dialects import standard_dialects
from aliquot.dialects.gpushare import ASSIGNED, CONTAINER, DEV, IDX, POD
from aliquot.embedded.api import resources
from aliquot.embedded.nodes import SCRIPT, AgentDevices
from aliquot.kube import PODS, ApiError
from aliquot.model.admission import PLACEABLE
from aliquot.model.records import PLACEMENT
from tests.factories import container_manifest, pod_manifest
from tests.fakes import until

SAMPLE = standard_dialects()["gpushare"].sample_pod()


@pytest.fixture
async def demo(folder: Path) -> AsyncIterator[DemoCluster]:
    machines = [
        Machine("gpu-1", ("Tesla T4", "Tesla T4"), ("gpushare",), has_agent=True),
        Machine("gpu-2", ("NVIDIA A10",), ("gpushare",), has_agent=True),
    ]
    async with DemoCluster(folder, machines) as running:
        yield running


def shown(demo: DemoCluster, name: str) -> Any:
    return demo.cluster.registry.get(resources.PODS, "default", name).obj


def phase(demo: DemoCluster, name: str) -> str:
    return str(shown(demo, name)["status"].get("phase"))


async def run(demo: DemoCluster, *manifests: Any) -> None:
    """Make pods and return when they run."""
    for manifest in manifests:
        await demo.client.create(PODS, manifest, "default")
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        await until(lambda name=name: phase(demo, name) == "Running", f"{name} runs")  # type: ignore[misc]


def inside(demo: DemoCluster, name: str, container: str = "main") -> dict[str, str]:
    pod = shown(demo, name)
    node = pod["spec"]["nodeName"]
    found = demo.nodes[node].kubelet.inside[pod["metadata"]["uid"], container]
    gpu = demo.plane.cluster.cards(node).by_uuid[found.environment["NVIDIA_VISIBLE_DEVICES"]]
    assert (found.environment[IDX], found.devices) == (str(gpu.index), [f"/dev/nvidia{gpu.minor}", "/dev/nvidiactl"])
    return found.environment


async def test_the_demo_notices_what_no_event_tells(demo: DemoCluster) -> None:
    """Such as an API server that answers again."""
    events: list[None] = []
    looks: list[int] = []
    demo.plane.changed.subscribe(events.append)

    def looks_without_an_event() -> bool:
        looks.append(len(events))
        return looks[-2:] == [len(events)] * 2

    async with asyncio.timeout(10):
        await demo.until(looks_without_an_event)


async def test_the_sample_pod_runs_with_its_share_inside(demo: DemoCluster) -> None:
    await run(demo, SAMPLE)
    name = SAMPLE["metadata"]["name"]
    cards = demo.plane.cluster.cards("gpu-1")
    assert inside(demo, name, "binpack-1") == {
        "NVIDIA_VISIBLE_DEVICES": cards.gpus[0].uuid,
        IDX: "0",
        POD: "3",
        CONTAINER: "3",
        DEV: "15",
    }
    await until(lambda: shown(demo, name)["metadata"]["annotations"][ASSIGNED] == "true")


async def test_many_pods_of_a_user_each_get_the_card_that_their_annotation_names(demo: DemoCluster) -> None:
    await run(demo, *(pod_manifest(f"p{number}", 5) for number in range(10)))
    found = [(shown(demo, f"p{number}"), inside(demo, f"p{number}")) for number in range(10)]
    assert all(pod["metadata"]["annotations"][IDX] == environment[IDX] for pod, environment in found)
    used = [(pod["spec"]["nodeName"], environment["NVIDIA_VISIBLE_DEVICES"]) for pod, environment in found]
    assert sorted(used.count(card) for card in set(used)) == [3, 3, 4]


async def test_a_pod_with_init_and_side_containers_runs(demo: DemoCluster) -> None:
    containers = [container_manifest("a", 2), container_manifest("b", 3), container_manifest("plain", None)]
    init = [container_manifest("fetch", 4), container_manifest("side", 1, restartPolicy="Always")]
    await run(demo, pod_manifest("p", containers=containers, initContainers=init))
    shares = {name: inside(demo, "p", name)[CONTAINER] for name in ("fetch", "side", "a", "b")}
    assert shares == {"fetch": "4", "side": "1", "a": "2", "b": "3"}


async def test_a_pod_that_waits_is_told_the_one_cause_as_on_a_real_cluster(demo: DemoCluster) -> None:
    await demo.client.create(PODS, pod_manifest("waits", 82), "default")

    def reasons() -> dict[str, str]:
        conditions = shown(demo, "waits")["status"].get("conditions", ())
        return {condition["type"]: condition["message"] for condition in conditions}

    await until(lambda: PLACEABLE in reasons())
    assert reasons()[PLACEABLE].startswith("Never as things are: no node's cards can hold the pod even when empty")


async def test_a_deleted_pod_releases_its_part_for_one_that_waits(demo: DemoCluster) -> None:
    await run(demo, pod_manifest("large", 22))
    await demo.client.create(PODS, pod_manifest("waits", 22), "default")
    await until(lambda: "conditions" in shown(demo, "waits")["status"])
    condition = shown(demo, "waits")["status"]["conditions"][0]
    no_room = "Insufficient GPU Memory in one device"
    never = f"{no_room}: request exceeds the node's GPUs even when empty"
    assert condition["message"] == f"0/2 nodes are available: 1 {no_room}, 1 {never}"
    await demo.client.delete(PODS, "large", "default")
    await until(lambda: phase(demo, "waits") == "Running")
    assert demo.nodes["gpu-2"].kubelet.inside.keys() == {(shown(demo, "waits")["metadata"]["uid"], "main")}
    devices = demo.nodes["gpu-2"].devices
    assert isinstance(devices, AgentDevices)
    assert list(devices.cdi_folder.glob("*.json"))


async def test_a_pod_on_a_node_with_the_agent_ends_by_its_script_and_releases_its_part(demo: DemoCluster) -> None:
    script = {"annotations": {SCRIPT: "runs 0.1s, then succeeds"}}
    for number in range(3):
        await demo.client.create(PODS, pod_manifest(f"p{number}", 22, metadata=script), "default")
    for number in range(3):
        await until(lambda number=number: phase(demo, f"p{number}") == "Succeeded")  # type: ignore[misc]
    await until(lambda: not demo.plane.cluster.ledger.entries("gpu-2"))


async def test_a_pod_that_went_around_the_scheduler_gets_no_card(demo: DemoCluster) -> None:
    """The last line of defence: it waits on its node, and its status tells why."""
    await run(demo, SAMPLE)
    await demo.client.create(PODS, pod_manifest("around", "1k", node="gpu-1"), "default")
    await until(lambda: phase(demo, "around") == "Failed")
    assert shown(demo, "around")["status"]["reason"] == "UnexpectedAdmissionError"
    assert phase(demo, SAMPLE["metadata"]["name"]) == "Running"


async def test_the_extender_s_routes_show_the_same_books(demo: DemoCluster) -> None:
    await run(demo, SAMPLE)
    url = f"http://127.0.0.1:{demo.endpoint.port}"
    async with aiohttp.ClientSession() as session, session.get(f"{url}/gpushare-scheduler/inspect") as response:
        nodes = (await response.json())["nodes"]
    assert [(node["name"], node["usedGPU"]) for node in nodes] == [("gpu-1", 3), ("gpu-2", 0)]


async def test_a_user_cannot_forge_a_placement(demo: DemoCluster) -> None:
    """The demo's policies refuse it; only the accounts of server and agents may write one."""
    await run(demo, SAMPLE)
    forged = {"metadata": {"annotations": {PLACEMENT: "{}"}}}
    with pytest.raises(ApiError, match=f"may not write {PLACEMENT}"):
        await demo.client.patch(PODS, SAMPLE["metadata"]["name"], forged, namespace="default")
    assert demo.plane.notes() == ["This server leads in term 1."]


async def test_samples_that_do_not_run_in_time_are_an_error_that_says_why(demo: DemoCluster) -> None:
    await run(demo, *(pod_manifest(f"full-{units}-{number}", units) for number, units in enumerate((15, 15, 22))))
    await samples.create(demo.client, demo.samples)
    name = SAMPLE["metadata"]["name"]
    await until(lambda: "nodes are available" in str(shown(demo, name)["status"]), "it waits")
    with pytest.raises(SamplesDoNotRun, match=r"not every sample pod runs after 0.1 s: .*0/2 nodes are available"):
        await until_samples_run(demo, 0.1)
