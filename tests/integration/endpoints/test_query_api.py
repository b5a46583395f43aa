"""The query API at the HTTP seam: objects, lists and watches as kubectl and the original's clients ask for them."""

from collections.abc import AsyncIterator

import pytest

from aliquot.model import NodeGpus
from aliquot.model.load import CardLoad, NodeLoad, PodLoad
from aliquot.model.records import OBSERVED, write_observed
from tests.factories import container_manifest, make_gpu
from tests.integration.endpoints.query import SEED, TABLE, Query, querying
from tests.integration.room import Room

pytestmark = pytest.mark.embedded_only("the API server is in front of it, in tests/e2e")

RENEWED = "2023-11-14T22:30:00.000000Z"


@pytest.fixture
async def query(room: Room) -> AsyncIterator[Query]:
    """A pod holds 3 GiB of a card of a node."""
    await room.add_node()
    pod = await room.add_pod("train", 3)
    await room.commit(pod, "n1")
    async with querying(room) as made:
        yield made


async def test_a_node_shows_its_cards(query: Query) -> None:
    node = await query.get(f"{SEED}/gpuinfos/n1")
    assert (node["kind"], node["apiVersion"]) == ("GpuInfo", "metrics.nvidia.com/v1alpha1")
    seen = query.room.plane.nodes.get("n1")
    assert seen is not None
    metadata = node["metadata"]
    assert (metadata["name"], metadata["uid"]) == ("n1", seen.metadata.uid)
    assert metadata["creationTimestamp"] == seen.metadata.creation_timestamp
    spec = node["spec"]
    assert spec["device_node"] == "n1"
    assert spec["device_models"] == {"tesla t4": ["GPU-n1-0", "GPU-n1-1"]}
    assert spec["device_busy"] == ["GPU-n1-0"]
    assert spec["device_free"] == {"tesla t4": 1}
    card = spec["device_infos"]["GPU-n1-0"]
    assert card["device_id"] == "GPU-n1-0"
    assert card["device_model"] == "Tesla T4"
    assert card["device_node"] == "n1"
    assert (card["device_memory"], card["device_memory_held"]) == (15360, 3072)
    assert node["status"]["node_health"] == "UnKnow"
    assert node["status"]["node_last_health_time"] == "UnKnow"


async def test_a_pod_shows_the_cards_of_its_containers(query: Query) -> None:
    pod = await query.get(f"{SEED}/podresources/default.train")
    assert (pod["kind"], pod["apiVersion"]) == ("PodResource", "metrics.nvidia.com/v1alpha1")
    spec = pod["spec"]
    assert (spec["pod_name"], spec["pod_namespace"], spec["node_name"]) == ("train", "default", "n1")
    (container,) = spec["containers_device"]
    assert container["container_name"] == "main"
    (device,) = container["device_info"]
    assert device["device_id"] == "GPU-n1-0"
    assert pod["status"]["last_changed_time"]
    listed = await query.get(f"{SEED}/podresources")
    assert listed["kind"] == "PodResourceList"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["default.train"]


async def test_the_newer_version_and_the_tenants_resource_show_the_same(query: Query) -> None:
    seed = await query.get(f"{SEED}/podresources/default.train")
    newer = await query.get("/apis/nvidia-gpu-scheduler/v1/gpupods/default.train")
    tenants = await query.get("/apis/gpu.aliquot.io/v1alpha1/namespaces/default/podgpus/train")
    assert (newer["kind"], newer["apiVersion"]) == ("GpuPod", "nvidia-gpu-scheduler/v1")
    assert newer["metadata"]["labels"]["nvidia-gpu-scheduler.node"] == "n1"
    assert newer["spec"] == seed["spec"] == tenants["spec"]
    assert (tenants["metadata"]["namespace"], tenants["metadata"]["name"]) == ("default", "train")
    node = await query.get("/apis/nvidia-gpu-scheduler/v1/gpunodes/n1")
    assert node["status"]["health"] == "UnKnow"


async def test_kubectl_gets_a_table(query: Query) -> None:
    await query.heartbeat("n1", RENEWED)
    nodes = await query.get(f"{SEED}/gpuinfos", TABLE, limit="500")
    assert nodes["kind"] == "Table"
    columns = [column["name"].upper() for column in nodes["columnDefinitions"] if not column["priority"]]
    assert columns == ["NAME", "HEALTH", "MODELS", "TOTAL", "BUSY", "FREE", "LAST-SEEN", "AGE"]
    (row,) = nodes["rows"]
    assert row["cells"][:6] == ["n1", "True", "tesla t4", 2, 1, 1]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    pods = await query.get(f"{SEED}/podresources", TABLE)
    columns = [column["name"].upper() for column in pods["columnDefinitions"] if not column["priority"]]
    assert columns == ["NAME", "NAMESPACE", "POD", "NODE", "GPUS", "MODEL", "AGE"]
    assert pods["rows"][0]["cells"][:6] == ["default.train", "default", "train", "n1", 1, "Tesla T4"]


async def test_a_watch_shows_a_pod_come_and_go(query: Query) -> None:
    version = (await query.get(f"{SEED}/podresources"))["metadata"]["resourceVersion"]
    async with query.watch(f"{SEED}/podresources", resourceVersion=version) as frames:
        pod = await query.room.add_pod("more", 2)
        await query.room.commit(pod, "n1")
        added = await frames.next()
        assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "default.more")
        await query.room.delete_pod(pod)
        gone = await frames.next()
        assert (gone["type"], gone["object"]["metadata"]["name"]) == ("DELETED", "default.more")


async def test_the_originals_clients_get_its_frames(query: Query) -> None:
    async with query.watch(f"{SEED}/podresources") as frames:
        first = await frames.next()
        assert (first["Type"], first["Object"]["spec"]["pod_name"]) == ("SYNCED", "train")
        pod = query.room.plane.pods.get("default/train")
        assert pod is not None
        await query.room.delete_pod(pod)
        gone = await frames.next()
        assert gone["Type"] == "DELETED"
        assert gone["Object"]["spec"] == {"pod_name": "train", "pod_namespace": "default"}
    async with query.watch("/apis/nvidia-gpu-scheduler/v1/gpunodes") as frames:
        first = await frames.next()
        assert (first["Type"], first["GpuNode"]["metadata"]["name"]) == ("SYNCED", "n1")


async def test_a_dead_agent_is_seen_within_its_lease(query: Query) -> None:
    await query.heartbeat("n1", RENEWED)
    version = (await query.get(f"{SEED}/gpuinfos"))["metadata"]["resourceVersion"]
    async with query.watch(f"{SEED}/gpuinfos", resourceVersion=version) as frames:
        await query.room.clock.move(42)
        changed = await frames.next()
    assert changed["object"]["status"]["node_health"] == "False"
    assert changed["object"]["status"]["node_last_health_time"] == RENEWED


async def test_use_is_shown_beside_what_is_held(query: Query) -> None:
    (entry,) = query.room.plane.cluster.ledger.entries("n1")
    await query.heartbeat("n1", RENEWED)
    load = NodeLoad(1.0, {"GPU-n1-0": CardLoad(0.5, 2**31)}, {entry.uid: {"GPU-n1-0": PodLoad(2**30, 0.25)}})
    await query.room.clock.move(31)
    await query.heartbeat("n1", "2023-11-14T22:30:30.000000Z", load)
    card = (await query.get(f"{SEED}/gpuinfos/n1"))["spec"]["device_infos"]["GPU-n1-0"]
    assert (card["device_cores_used"], card["device_memory_used"]) == (50, 2048)
    status = (await query.get(f"{SEED}/podresources/default.train"))["status"]
    assert (status["cores_used"], status["memory_used"]) == (25, 1024)


async def test_a_version_of_another_server_has_expired(query: Query) -> None:
    async with querying(query.room, instance=8) as other:
        version = (await other.get(f"{SEED}/podresources"))["metadata"]["resourceVersion"]
    status, _, body = await query.ask("GET", f"{SEED}/podresources", resourceVersion=version)
    assert (status, body["reason"]) == (410, "Expired")
    async with query.watch(f"{SEED}/podresources", resourceVersion=version) as frames:
        frame = await frames.next()
    assert (frame["type"], frame["object"]["code"]) == ("ERROR", 410)


async def test_cards_that_another_plugin_gave_are_those_of_the_agents_record(room: Room) -> None:
    cards = NodeGpus("n1", (make_gpu(0), make_gpu(1, model="Tesla V100")), 1024, observed=True)
    await room.add_node(cards, capacity={"nvidia.com/gpu": "2"})
    containers = [container_manifest(name, None, resources={"limits": {"nvidia.com/gpu": "1"}}) for name in ("a", "b")]
    pod = await room.add_pod("whole", containers=containers, node="n1")
    async with querying(room) as query:
        assert (await query.get(f"{SEED}/podresources"))["items"] == [], "its cards are not known yet"
        assert len((await query.get(f"{SEED}/gpuinfos/n1"))["spec"]["device_busy"]) == 2
        record = write_observed(pod.metadata.uid, {"a": ["GPU-n1-1"], "b": ["GPU-n1-0"]})
        await room.annotate(pod, **{OBSERVED: record})
        await query.settled()
        spec = (await query.get(f"{SEED}/podresources/default.whole"))["spec"]
        given = {each["container_name"]: each["device_info"] for each in spec["containers_device"]}
        assert {name: device["device_model"] for name, (device,) in given.items()} == {
            "a": "Tesla V100",
            "b": "Tesla T4",
        }
        models = (await query.get(f"{SEED}/gpuinfos/n1"))["spec"]["device_models"]
        assert models == {"tesla t4": ["GPU-n1-0"], "tesla v100": ["GPU-n1-1"]}


async def test_a_pod_that_has_ended_is_gone_before_it_is_deleted(query: Query) -> None:
    pod = query.room.plane.pods.get("default/train")
    assert pod is not None
    await query.room.report(pod, phase="Succeeded")
    await query.settled()
    assert (await query.get(f"{SEED}/podresources"))["items"] == []
    assert (await query.get(f"{SEED}/gpuinfos/n1"))["spec"]["device_busy"] == []


async def test_a_server_that_starts_anew_knows_when_cards_were_given(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod("train", 3)
    await room.commit(pod, "n1")
    await room.in_sync()
    await room.report(pod, startTime="2023-11-14T22:00:00Z")
    seen = []
    for instance in (1, 2):
        async with querying(room, instance) as query:
            found = await query.get(f"{SEED}/podresources/default.train")
            found["metadata"].pop("resourceVersion")
            seen.append(found)
    assert seen[0] == seen[1]
    assert seen[0]["status"]["last_changed_time"] == "2023-11-14T22:00:00Z"


async def test_heartbeats_renew_a_node_now_and_then_only(query: Query) -> None:
    await query.heartbeat("n1", RENEWED)
    version = query.api.store.revision
    for second in range(1, 6):
        await query.room.clock.move(5)
        await query.heartbeat("n1", RENEWED.replace("30:00", f"30:{second * 5:02}"))
    assert query.api.store.revision == version
    await query.room.clock.move(6)
    await query.heartbeat("n1", RENEWED.replace("30:00", "30:31"))
    assert (await query.get(f"{SEED}/gpuinfos/n1"))["status"]["node_last_health_time"].endswith("30:31.000000Z")
