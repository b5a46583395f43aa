"""The agent as a whole: what it publishes, what it tidies up, what stops it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from aliquot import agent
from aliquot.agent.card_reader import READ_SECONDS
from aliquot.agent.devices import Machine
from aliquot.agent.inventory import Publisher
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.config.agent_tree import AgentConfig
from aliquot.dialects import standard_dialects
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.errors import BadConfig, NoDriver
from aliquot.kube import NODES, Client
from aliquot.model import Gpu, Node, Pod
from aliquot.model.records import INVENTORY, read_inventory
from tests.factories import GPU_COUNT, GPU_MEM, make_cards, make_node, node_manifest, pod_manifest
from tests.fakes import FakeClock, FakeRuntime, ScriptedApi, answer, held, until
from tests.ports import free_port

CARDS = make_cards()
OFFERED = {GPU_MEM: 30, GPU_COUNT: 2}
TIDY_SECONDS = 10.0


class FakeDevices(NvidiaDevices):
    def __init__(self, *gpus: Gpu, dev: Path = Path("/dev")) -> None:
        super().__init__(dev)
        self.gpus = gpus

    def read(self) -> Machine:
        if not self.gpus:
            raise NoDriver("no driver here")
        return Machine(self.gpus)


def settings(folder: Path, **fields: Any) -> AgentConfig:
    defaults: dict[str, Any] = {
        "node_name": "n1",
        "dialects": ("gpushare",),
        "device_plugins": folder / "device-plugins",
        "pod_resources": folder / "pod-resources" / "kubelet.sock",
        "runtime_endpoint": "",
        "cdi_folder": folder / "cdi",
    }
    chosen: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value for name, value in (defaults | fields).items()
    }
    return AgentConfig(**chosen)


@asynccontextmanager
async def running(
    folder: Path, client: Client, clock: FakeClock, offers: dict[str, int] = OFFERED, **fields: Any
) -> AsyncIterator[DeviceManager]:
    async with (
        DeviceManager(folder / "device-plugins") as kubelet,
        serving(folder, client, clock, FakeDevices(*CARDS.gpus, dev=folder / "dev"), **fields),
    ):
        await until(lambda: kubelet.capacity().items() >= offers.items(), "the agent is registered")
        yield kubelet


@asynccontextmanager
async def serving(
    folder: Path, client: Client, clock: FakeClock, devices: FakeDevices, **fields: Any
) -> AsyncIterator[None]:
    (folder / "pod-resources").mkdir(exist_ok=True)
    task = asyncio.create_task(agent.run(settings(folder, **fields), client, devices, clock))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def node(scripted: ScriptedApi) -> None:
    scripted.registry.create(resources.NODES, "", node_manifest("n1"))


def shown(api: ScriptedApi) -> Any:
    return api.registry.get(resources.NODES, "", "n1").obj


@pytest.mark.usefixtures("node")
async def test_the_agent_publishes_its_cards_and_their_number(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    async with running(folder, client, clock) as kubelet:
        await until(lambda: INVENTORY in shown(scripted)["metadata"].get("annotations", {}))
        assert read_inventory("n1", shown(scripted)["metadata"]["annotations"][INVENTORY]) == CARDS
        assert kubelet.capacity() == OFFERED
        on_node = [seen.path for seen in scripted.writes() if seen.path.endswith("/nodes/n1")]
        assert len(on_node) == 1


@pytest.mark.usefixtures("node")
async def test_what_somebody_removes_is_written_again(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    """As kubelet does on a node that is made anew."""
    async with running(folder, client, clock):
        await until(lambda: INVENTORY in shown(scripted)["metadata"].get("annotations", {}))
        await client.patch(NODES, "n1", {"metadata": {"annotations": {INVENTORY: None}}})
        await until(lambda: INVENTORY in shown(scripted)["metadata"].get("annotations", {}))
        scripted.registry.delete(resources.NODES, "", "n1", DeleteRequest())
        scripted.registry.create(resources.NODES, "", node_manifest("n1"))
        await until(lambda: INVENTORY in shown(scripted)["metadata"].get("annotations", {}))


@pytest.mark.usefixtures("node")
async def test_an_agent_serves_every_resource_of_the_dialects_that_it_is_told(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    """keti's cards are cut into slots, which the inventory tells."""
    offers = {"keti.com/mpsgpu": 20, "tencent.com/vcuda-core": 200, "tencent.com/vcuda-memory": 120}
    async with running(folder, client, clock, offers, dialects=("tencent", "keti", "tencent")) as kubelet:
        assert kubelet.capacity() == offers
        await until(lambda: INVENTORY in shown(scripted)["metadata"].get("annotations", {}))
        inventory = read_inventory("n1", shown(scripted)["metadata"]["annotations"][INVENTORY])
        assert [gpu.slots for gpu in inventory.gpus] == [10, 10]


@pytest.mark.parametrize(
    ("dialects", "text"),
    [
        pytest.param(["nobody"], "unknown dialect nobody; valid dialects are aliquot, gpushare", id="an unknown one"),
        pytest.param(
            ["hami", "nvidia"],
            "hami and nvidia both use nvidia.com/gpu; a node can serve only one of them",
            id="two that share a resource",
        ),
    ],
)
async def test_dialects_that_cannot_be_served_are_named_before_anything_is_made(
    folder: Path, client: Client, dialects: list[str], text: str
) -> None:
    with pytest.raises(BadConfig, match=f"--dialect: {text}"):
        await agent.run(settings(folder, dialects=dialects), client, FakeDevices(*CARDS.gpus))
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("node")
async def test_nothing_is_written_when_nothing_differs(client: Client, scripted: ScriptedApi, clock: FakeClock) -> None:
    publisher = Publisher(client, NodeCards(CARDS), standard_dialects(), clock)
    await publisher.publish()
    publisher.see(make_node("n1"))
    await publisher.publish()
    assert shown(scripted)["metadata"]["labels"]["nvidia.com/gpu.product"] == "Tesla-T4"
    publisher.see(msgspec.convert(shown(scripted), Node))
    await publisher.publish()
    assert len(scripted.writes()) == 1


@pytest.mark.usefixtures("node")
async def test_a_write_that_fails_is_tried_again(client: Client, scripted: ScriptedApi, clock: FakeClock) -> None:
    publisher = Publisher(client, NodeCards(CARDS), standard_dialects(), clock)
    publisher.see(make_node("n1"))
    scripted.script("PATCH", "/nodes/n1$", answer(500, message="no"))
    with pytest.raises(Exception, match="no"):
        await publisher.publish()
    await publisher.publish()
    assert INVENTORY in shown(scripted)["metadata"]["annotations"]


@pytest.mark.usefixtures("node")
async def test_a_write_that_keeps_failing_is_told_once(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    scripted.script("PATCH", "/nodes/n1$", *[answer(500, message="no")] * 3)
    with capture_logs() as told:
        async with running(folder, client, clock):
            await until(
                lambda: INVENTORY in shown(scripted)["metadata"].get("annotations", {}), "at last", passing=clock
            )
    assert [line["event"] for line in told].count("cannot publish the inventory, retrying") == 1


@pytest.mark.usefixtures("node")
async def test_an_account_that_may_write_the_status_alone_publishes_there(
    client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    """As those of the originals' device plugins."""
    publisher = Publisher(client, NodeCards(CARDS), standard_dialects(), clock)
    publisher.see(make_node("n1"))
    scripted.script("PATCH", "/nodes/n1$", answer(403, message="no"))
    await publisher.publish()
    assert INVENTORY in shown(scripted)["metadata"]["annotations"]
    assert [seen.path for seen in scripted.writes()] == ["/api/v1/nodes/n1", "/api/v1/nodes/n1/status"]


@pytest.mark.usefixtures("node")
async def test_the_specs_of_pods_that_are_gone_are_removed(folder: Path, client: Client, clock: FakeClock) -> None:
    left = folder / "cdi" / "aliquot.io-gpu_abc.json"
    left.parent.mkdir()
    left.write_text('{"annotations":{"aliquot.io/pod-uid":"gone"}}')
    async with running(folder, client, clock):
        await until(lambda: not left.exists(), "the spec of the last life is removed")
        left.write_text('{"annotations":{"aliquot.io/pod-uid":"gone"}}')
        await until(lambda: clock.sleeping)
        await clock.move(10)
        await until(lambda: not left.exists(), "and those of this one every 10 s")


def spec(folder: Path, name: str, uid: str) -> Path:
    """A CDI spec of a pod, as a hand-over leaves it."""
    path = folder / "cdi" / f"aliquot.io-gpu_{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{{"annotations":{{"aliquot.io/pod-uid":"{uid}"}}}}')
    return path


def pod_here(api: ScriptedApi, name: str, phase: str = "Running") -> str:
    """The UID of a pod of this node."""
    made = api.registry.create(resources.PODS, "default", pod_manifest(name, node="n1"))
    api.registry.rewrite(resources.PODS, "default", name, lambda pod: {**pod, "status": {"phase": phase}})
    return str(made.obj["metadata"]["uid"])


async def tidied(clock: FakeClock) -> None:
    """Return when the agent has tidied up once more."""
    before = clock.asked.count(TIDY_SECONDS)
    await until(lambda: clock.asked.count(TIDY_SECONDS) > before, "the agent tidies up", passing=clock)


@pytest.mark.usefixtures("node")
async def test_the_specs_of_pods_that_have_ended_are_removed(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    phases = ("Pending", "Running", "Succeeded", "Failed")
    specs = {phase: spec(folder, phase, pod_here(scripted, phase.lower(), phase)) for phase in phases}
    async with running(folder, client, clock):
        await tidied(clock)
        assert [phase for phase, path in specs.items() if path.exists()] == ["Pending", "Running"]


@pytest.mark.usefixtures("node")
async def test_a_spec_that_cannot_be_read_is_left_and_ends_nothing(
    folder: Path, client: Client, clock: FakeClock
) -> None:
    odd, gone = spec(folder, "odd", "gone"), spec(folder, "gone", "gone")
    odd.unlink()
    odd.mkdir()
    async with running(folder, client, clock) as kubelet:
        for _ in range(2):
            await tidied(clock)
        assert (odd.exists(), gone.exists()) == (True, False)
        assert kubelet.capacity() == OFFERED


@pytest.mark.usefixtures("node")
async def test_nothing_is_removed_while_the_agent_cannot_know_which_pods_there_are(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    async with running(folder, client, clock):
        arrived, release = asyncio.Event(), asyncio.Event()
        scripted.script("GET", r"/pods\?.*watch=true", answer(410, reason="Expired", message="too old"))
        scripted.script("GET", r"/pods\?.*limit=", held(arrived, release))
        scripted.cut_watches("pods")
        await until(arrived.is_set, "the agent lists its pods again", passing=clock)
        unseen = spec(folder, "unseen", pod_here(scripted, "unseen"))
        gone = spec(folder, "gone", "gone")
        for _ in range(2):
            await tidied(clock)
        assert (unseen.exists(), gone.exists()) == (True, True)
        release.set()
        await until(lambda: not gone.exists(), "it tidies up when it knows again", passing=clock)
        assert unseen.exists()


@pytest.mark.parametrize("place", ["cdi", "cdi/deeper"], ids=["a file in its place", "a file above it"])
async def test_a_cdi_folder_that_cannot_be_used_is_named_before_anything_is_made(
    folder: Path, client: Client, place: str
) -> None:
    (folder / "cdi").touch()
    (folder / "pod-resources").mkdir()
    chosen = settings(folder, cdi_folder=folder / place, injection="cdi")
    with pytest.raises(BadConfig, match=f"the CDI folder {folder / place} cannot be used: "):
        await agent.run(chosen, client, FakeDevices(*CARDS.gpus))
    assert sorted(path.name for path in folder.iterdir()) == ["cdi", "pod-resources"]


async def test_a_missing_device_plugins_folder_ends_the_agent_in_words(
    folder: Path, client: Client, clock: FakeClock
) -> None:
    """A part that fails ends all of the agent. Nobody answers kubelet's probe for it."""
    port = free_port()
    failed = pytest.RaisesExc(BadConfig, match="cannot listen on .*: does its folder exist")
    with pytest.RaisesGroup(failed, failed):
        await agent.run(settings(folder, health_port=port), client, FakeDevices(*CARDS.gpus), clock)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.usefixtures("node")
async def test_an_agent_without_a_driver_says_so_once_and_begins_when_a_card_appears(
    folder: Path, client: Client, clock: FakeClock
) -> None:
    devices = FakeDevices()
    with capture_logs() as logs:
        async with DeviceManager(folder / "device-plugins") as kubelet, serving(folder, client, clock, devices):
            await until(lambda: clock.asked.count(READ_SECONDS) > 3, "it looks again and again", passing=clock)
            assert kubelet.capacity() == {}
            devices.gpus = CARDS.gpus
            await until(lambda: kubelet.capacity() == OFFERED, "it serves the cards", passing=clock)
    assert [(line["log_level"], line["why"]) for line in logs if line["event"].startswith("no card")] == [
        ("warning", "no driver here")
    ]


@pytest.mark.parametrize(
    ("gpus", "offers", "published"),
    [
        pytest.param(make_cards(unhealthy=[1]).gpus, {GPU_MEM: 15, GPU_COUNT: 1}, [True, False], id="a card fails"),
        pytest.param(
            make_cards(mib=[15360] * 3).gpus, {GPU_MEM: 45, GPU_COUNT: 3}, [True, True, True], id="a card appears"
        ),
        pytest.param(make_cards(mib=[15360]).gpus, {GPU_MEM: 15, GPU_COUNT: 1}, [True], id="a card goes"),
        pytest.param((), {GPU_MEM: 0, GPU_COUNT: 0}, [False, False], id="the driver restarts"),
    ],
)
@pytest.mark.usefixtures("node")
async def test_cards_that_change_are_told_to_kubelet_and_published_and_so_is_their_return(
    folder: Path,
    client: Client,
    scripted: ScriptedApi,
    clock: FakeClock,
    gpus: tuple[Gpu, ...],
    offers: dict[str, int],
    published: list[bool],
) -> None:
    def healthy() -> list[bool]:
        record = shown(scripted)["metadata"].get("annotations", {}).get(INVENTORY)
        return [gpu.healthy for gpu in read_inventory("n1", record).gpus] if record else []

    devices = FakeDevices(*CARDS.gpus)
    async with DeviceManager(folder / "device-plugins") as kubelet, serving(folder, client, clock, devices):
        await until(lambda: kubelet.capacity() == OFFERED, "the agent is registered", passing=clock)
        devices.gpus = gpus
        await until(lambda: kubelet.capacity() == offers and healthy() == published, "it changed", passing=clock)
        devices.gpus = CARDS.gpus
        await until(lambda: kubelet.capacity() == OFFERED and healthy() == [True, True], "it is back", passing=clock)


@pytest.mark.usefixtures("node")
async def test_a_card_that_fails_does_not_make_the_agent_count_all_ids_again(
    folder: Path, client: Client, clock: FakeClock
) -> None:
    """Two resources of elastic have too many ids here, which the log says once."""
    cards = make_cards(mib=[220_000])
    devices, offers = FakeDevices(*cards.gpus), {"elastic-gpu/gpu-percent": 100}
    with capture_logs() as told:
        async with (
            DeviceManager(folder / "device-plugins") as kubelet,
            serving(folder, client, clock, devices, dialects=("elastic",)),
        ):
            await until(lambda: kubelet.capacity().items() >= offers.items(), "it is registered", passing=clock)
            devices.gpus = tuple(replace(gpu, healthy=False) for gpu in cards.gpus)
            await until(lambda: not any(kubelet.capacity().values()), "the card has failed", passing=clock)
    refused = [line["resource"] for line in told if line["event"] == "not offering a resource on this node"]
    assert refused == ["elasticgpu.io/gpu-memory", "elasticgpu.com/gpu-memory"]


WITHOUT_CDI = "containers get their devices at Allocate, without CDI"


async def test_a_runtime_without_cdi_is_refused_before_anything_is_made_where_cdi_is_wanted(
    folder: Path, client: Client
) -> None:
    socket = folder / "cri.sock"
    async with FakeRuntime(socket, {}):
        chosen = settings(folder, runtime_endpoint=socket, injection="cdi")
        with pytest.raises(BadConfig, match="has CDI disabled"):
            await agent.run(chosen, client, FakeDevices(*CARDS.gpus))
    assert sorted(path.name for path in folder.iterdir()) in ([], ["cri.sock"])


async def test_a_runtime_that_is_there_and_silent_is_no_reason_to_do_without_cdi(folder: Path, client: Client) -> None:
    """It may have started a moment later than the agent."""
    chosen = settings(folder, runtime_endpoint=folder / "cri.sock")
    with pytest.raises(BadConfig, match="does not answer"):
        await agent.run(chosen, client, FakeDevices(*CARDS.gpus))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"injection": "allocate"}, "--injection says so", id="by configuration"),
        pytest.param({"runtime_endpoint": "cri.sock"}, "has CDI disabled", id="the runtime has none"),
        pytest.param(
            {"runtime_endpoint": "gone/cri.sock"},
            "set --runtime-endpoint, or mount",
            id="no runtime is mounted",
        ),
        pytest.param(
            {"pod_resources": "gone/kubelet.sock"}, "set --pod-resources, or mount", id="no PodResources is mounted"
        ),
        pytest.param({"cdi_folder": "cri.sock/cdi"}, "cannot be used: Not a directory", id="the folder is unusable"),
    ],
)
@pytest.mark.usefixtures("node")
async def test_without_cdi_the_agent_serves_all_the_same_and_says_so_once(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock, fields: dict[str, str], why: str
) -> None:
    given: dict[str, Any] = {key: value if key == "injection" else folder / value for key, value in fields.items()}
    (folder / "dev").mkdir()
    for gpu in CARDS.gpus:
        (folder / "dev" / f"nvidia{gpu.minor}").touch()
    async with FakeRuntime(folder / "cri.sock", {}):
        with capture_logs() as logs:
            async with running(folder, client, clock, **given) as kubelet:
                annotations = {"ALIYUN_COM_GPU_MEM_IDX": "1"}
                manifest = pod_manifest("p", node="n1", metadata={"annotations": annotations})
                pod = msgspec.convert(scripted.registry.create(resources.PODS, "default", manifest).obj, Pod)
                await kubelet.admit(pod)
                (answer,) = await kubelet.pre_start(pod, "main")
    assert [device.container_path for device in answer.devices] == [f"/dev/nvidia{CARDS.gpus[1].minor}"]
    assert not answer.cdi_devices
    (line,) = (line for line in logs if line["event"] == WITHOUT_CDI)
    assert why in line["why"]
    assert not (folder / "cdi").exists()
