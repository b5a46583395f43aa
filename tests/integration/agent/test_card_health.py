"""Cards that fail and return, as kubelet, the API server and people see them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pynvml
import pytest
from structlog.testing import capture_logs

from aliquot import agent
from aliquot.agent import checkpoint, rpc
from aliquot.agent.card_reader import READ_SECONDS
from aliquot.agent.devices import CardError
from aliquot.agent.kubelet_records import CHECKPOINT
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.embedded.api import resources
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.errors import BadConfig, Refused
from aliquot.kube import NODES, PODS, Client
from aliquot.model import Pod
from aliquot.model.admission import CARDS_HEALTHY
from aliquot.model.records import INVENTORY, PLACEMENT, read_inventory, write_placement
from tests.factories import GPU_COUNT, GPU_MEM, make_cards, make_placement, node_manifest, pod_manifest
from tests.fakes import SECONDS, FakeClock, ScriptedApi, answer, until
from tests.fakes.nvml import FakeCard, FakeNvml
from tests.integration.agent.node import DIALECT, AgentNode
from tests.integration.agent.test_agent import FakeDevices, settings
from tests.integration.agent.test_rivals import NVIDIA, OFFERS, SELLS, rival
from tests.ports import free_port

ALL = {GPU_MEM: 30, GPU_COUNT: 2}
HALF = {GPU_MEM: 15, GPU_COUNT: 1}
SOCKET = DIALECT.resources[0].socket


class Served:
    """A node with two simulated cards that the agent serves; its clock passes whenever a test waits."""

    def __init__(self, folder: Path, api: ScriptedApi, client: Client, clock: FakeClock) -> None:
        self.gpus: Any = SimulatedGpus("n1", ["Tesla T4"] * 2)
        self.uuids = [gpu.uuid for gpu in self.gpus.read().gpus]
        self.kubelet = DeviceManager(folder / "device-plugins")
        self.client = client
        self.clock = clock
        self.folder = folder
        self.api = api
        api.registry.create(resources.NODES, "", node_manifest("n1"))

    @asynccontextmanager
    async def agent(self, **fields: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(agent.run(settings(self.folder, **fields), self.client, self.gpus, self.clock))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def shows(self, what: str, *, offers: dict[str, int], cards: list[tuple[bool, bool]], reason: str) -> None:
        """Wait until kubelet, inventory and condition say so."""

        def is_shown() -> bool:
            said = self.condition()
            return self.kubelet.capacity() == offers and self.cards() == cards and said.get("reason") == reason

        await until(is_shown, what, passing=self.clock)

    async def read_again(self) -> None:
        """Return when the agent has read the cards as they are now. A read that has begun does not count."""
        reads = self.clock.asked.count(READ_SECONDS) + 2
        await until(lambda: self.clock.asked.count(READ_SECONDS) >= reads, "the cards are read", passing=self.clock)

    def node(self) -> Any:
        return self.api.registry.get(resources.NODES, "", "n1").obj

    def cards(self) -> list[tuple[bool, bool]]:
        """Whether each card of the inventory is healthy and cordoned."""
        record = self.node()["metadata"].get("annotations", {}).get(INVENTORY)
        gpus = read_inventory("n1", record).gpus if record else ()
        return [(gpu.healthy, gpu.cordoned) for gpu in gpus]

    def condition(self) -> dict[str, str]:
        found = [c for c in self.node().get("status", {}).get("conditions") or () if c["type"] == CARDS_HEALTHY]
        return found[0] if found else {}

    def events(self, kind: str) -> list[tuple[str, str]]:
        """Reason and message of the events about a kind of object."""
        events = [held.obj for held in self.api.store.snapshot("events")]
        return [(e["reason"], e["message"]) for e in events if e["involvedObject"]["kind"] == kind]

    async def say(self, name: str, word: str | None) -> None:
        """A person annotates the Node."""
        await self.client.patch(NODES, "n1", {"metadata": {"annotations": {f"cordon.aliquot.io/{name}": word}}})


@pytest.fixture
async def served(folder: Path, scripted: ScriptedApi, client: Client, clock: FakeClock) -> AsyncIterator[Served]:
    made = Served(folder, scripted, client, clock)
    async with made.kubelet:
        yield made


GOOD: dict[str, Any] = {"offers": ALL, "cards": [(True, False), (True, False)], "reason": "CardsHealthy"}
FIRST_BAD: dict[str, Any] = {"offers": HALF, "cards": [(False, False), (True, False)], "reason": "CardsUnhealthy"}


async def test_a_card_with_a_bad_xid_error_is_unhealthy_everywhere_until_it_was_reset(served: Served) -> None:
    async with served.agent():
        await served.shows("all is well", **GOOD)
        served.gpus.report_xid(served.uuids[0], 31)
        served.gpus.report_xid(served.uuids[0], 79)
        await served.shows("the card is drained", **FIRST_BAD)
        card = f"card 0 ({served.uuids[0]})"
        said = served.condition()
        assert said["status"] == "False"
        assert said["message"] == f"1 of 2 cards are healthy; {card}: XID 79: the card fell off the bus"
        served.gpus.lose(served.uuids[0])
        await served.read_again()
        served.gpus.recover(served.uuids[0])
        await served.shows("the card is back", **GOOD)
        await until(lambda: len(served.events("Node")) == 2, "it is told", passing=served.clock)
        assert served.events("Node") == [
            ("CardUnhealthy", f"{card} is unhealthy, so no container starts on it: XID 79: the card fell off the bus"),
            ("CardHealthy", f"{card} is healthy again"),
        ]


async def test_a_fault_that_a_reading_shows_ends_with_it(served: Served) -> None:
    async with served.agent():
        await served.shows("all is well", **GOOD)
        served.gpus.fail(served.uuids[0], "it has 99 degrees Celsius")
        await served.shows("the card is unhealthy", **FIRST_BAD)
        before = served.node()["metadata"]["resourceVersion"]
        for celsius in range(100, 105):
            served.gpus.fail(served.uuids[0], f"it has {celsius} degrees Celsius")
            await served.read_again()
        assert served.node()["metadata"]["resourceVersion"] == before, "a temperature is no reason to write"
        served.gpus.recover(served.uuids[0])
        await served.shows("the card is back", **GOOD)


async def test_a_card_with_a_doubtful_xid_error_takes_no_new_pods_until_a_person_says_that_it_is_good(
    served: Served,
) -> None:
    async with served.agent():
        await served.shows("all is well", **GOOD)
        served.gpus.report_xid(served.uuids[1], 74)
        cordoned: dict[str, Any] = {"offers": ALL, "cards": [(True, False), (True, True)], "reason": "CardsCordoned"}
        await served.shows("the card is cordoned", **cordoned)
        assert served.condition()["status"] == "True"
        await served.say(served.uuids[1], "false")
        await served.shows("the person is believed", **GOOD)
        told = ["CardCordoned", "CardUncordoned"]
        await until(lambda: [reason for reason, _ in served.events("Node")] == told, "it is told", passing=served.clock)


async def test_a_person_cordons_and_uncordons_a_card_and_wrong_names_are_told_once(served: Served) -> None:
    with capture_logs() as logs:
        async with served.agent():
            await served.shows("all is well", **GOOD)
            await served.say("7", "true")
            await served.say("1", "true")
            await served.shows("it is told", **GOOD | {"reason": "CardsCordoned"})
            assert served.condition()["message"].endswith("is cordoned: it was cordoned by hand")
            await served.say("1", None)
            await served.shows("it is over", **GOOD)
    wrong = [line["annotation"] for line in logs if line["event"] == "an annotation of the node names no card of it"]
    assert wrong == ["cordon.aliquot.io/7"]


async def test_an_agent_that_starts_again_remembers_the_errors_of_its_cards(served: Served) -> None:
    async with served.agent():
        await served.shows("all is well", **GOOD)
        served.gpus.report_xid(served.uuids[0], 48)
        await served.shows("the card is drained", **FIRST_BAD)
    await until(lambda: not any(served.kubelet.capacity().values()), "the agent has ended")
    async with served.agent():
        await served.shows("the card is drained", **FIRST_BAD)
        assert served.cards() == [(False, False), (True, False)]


class AskedGpus(SimulatedGpus):
    waiting = 0
    """Calls that wait for errors."""

    def wait_for_events(self, seconds: float) -> Sequence[CardError]:
        self.waiting += 1
        try:
            return super().wait_for_events(seconds)
        finally:
            self.waiting -= 1


async def test_an_error_that_comes_while_the_labels_of_the_node_change_is_not_lost(served: Served) -> None:
    served.gpus = AskedGpus("n1", ["Tesla T4"] * 2)

    async def label(word: str | None) -> None:
        await served.client.patch(NODES, "n1", {"metadata": {"labels": {"gpushare": word}}})

    await label("true")
    async with served.agent(dialects=()):
        await served.shows("all is well", **GOOD)
        await label(None)
        await until(lambda: not any(served.kubelet.capacity().values()), "nothing is served", passing=served.clock)
        served.gpus.report_xid(served.uuids[0], 79)
        await until(lambda: not served.gpus.waiting, "the driver has told of the error")
        await label("true")
        await served.shows("the card is drained", **FIRST_BAD)


async def test_the_series_of_the_cards_end_while_the_labels_of_the_node_name_nothing(served: Served) -> None:
    port = free_port()

    async def metrics() -> str:
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            return await answer.text()

    async def label(word: str | None) -> None:
        await served.client.patch(NODES, "n1", {"metadata": {"labels": {"gpushare": word}}})

    await label("true")
    async with served.agent(dialects=(), health_port=port):
        await served.shows("all is well", **GOOD)
        assert "aliquot_card_cores_busy_ratio{" in await metrics()
        await label(None)
        async with asyncio.timeout(SECONDS):
            while "aliquot_card_cores_busy_ratio{" in await metrics():
                await served.clock.move(1)


async def test_an_agent_that_starts_again_still_tells_of_a_card_that_is_lost(served: Served, folder: Path) -> None:
    """The driver counts the card, and no longer tells its UUID."""
    lost, good = FakeCard("GPU-a", bus=1, error=pynvml.NVML_ERROR_GPU_IS_LOST), FakeCard("GPU-b", minor=1, bus=2)
    nvml = FakeNvml(lost, good)
    served.gpus = NvidiaDevices(folder, nvml=nvml, proc=folder, sysfs=folder, wait=nvml.wait)
    told = "card 0 has not answered since the agent started: GPU is lost"
    async with served.agent():
        await served.shows("one card is offered", offers=HALF, cards=[(True, False)], reason="CardsUnhealthy")
        assert served.condition()["message"] == f"1 of 2 cards are healthy; {told}"
        assert served.events("Node") == [("CardUnhealthy", f"{told}, so no container starts on it")]
        lost.error = pynvml.NVML_SUCCESS
        await served.shows("both are there", **GOOD)


async def test_a_file_of_errors_that_cannot_be_read_is_named_and_ends_nothing(served: Served, folder: Path) -> None:
    (folder / "cdi").mkdir()
    (folder / "cdi" / "aliquot.io-card-errors").write_text("{")
    with capture_logs() as logs:
        async with served.agent():
            await served.shows("all is well", **GOOD)
    assert [line for line in logs if line["event"] == "cannot read the errors of cards from before"]


async def test_a_pod_on_a_failed_card_is_told_and_gets_it_no_more_while_others_go_on(served: Served) -> None:
    async with served.agent():
        await served.shows("all is well", **GOOD)
        pods = [await _admitted(served, f"p{index}", index) for index in (0, 1)]
        for pod in pods:
            await _start(served, pod)
        served.gpus.report_xid(served.uuids[0], 79)
        await served.shows("the card is drained", **FIRST_BAD)
        await until(lambda: served.events("Pod"), "the pod is told", passing=served.clock)
        ((reason, message),) = served.events("Pod")
        assert reason == "CardUnhealthy"
        assert message.startswith(f"card 0 ({served.uuids[0]}) is unhealthy: XID 79: the card fell off the bus. ")
        with pytest.raises(Refused, match=f"card {served.uuids[0]} of the placement is unhealthy"):
            await _start(served, pods[0])
        await _start(served, pods[1])


async def _admitted(served: Served, name: str, card: int) -> Pod:
    """A bound pod, placed on a card, that kubelet has admitted."""
    cards = read_inventory("n1", served.node()["metadata"]["annotations"][INVENTORY])
    metadata = {"annotations": {PLACEMENT: write_placement(make_placement(cards, card))}}
    body = pod_manifest(name, node="n1", metadata=metadata)
    pod = await served.client.create(PODS, body, "default")
    await served.kubelet.admit(pod)
    return pod


async def _start(served: Served, pod: Pod) -> None:
    starting = asyncio.create_task(served.kubelet.pre_start(pod, "main"))
    await until(starting.done, "the container may start", passing=served.clock)
    await starting


# -- the agent's own listener


async def test_the_agent_s_own_port_tells_why_it_is_not_ready_and_what_its_cards_do(served: Served) -> None:
    port = free_port()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:

        async def get(path: str) -> tuple[int, str]:
            async with http.get(path) as answer:
                return answer.status, await answer.text()

        await served.kubelet.__aexit__()
        (served.kubelet.folder / "kubelet.sock").unlink(missing_ok=True)
        async with served.agent(health_port=port):
            await until(lambda: (served.kubelet.folder / SOCKET).exists(), "the agent serves", passing=served.clock)
            unknown = [f"kubelet does not know the device plugin of {name} yet" for name in (GPU_MEM, GPU_COUNT)]
            assert await get("/readyz") == (503, "\n".join(unknown))
            assert await get("/healthz") == (200, "ok")
            assert (await get("/elsewhere"))[0] == 404
            async with http.post("/healthz") as answer:
                assert answer.status == 405
            async with http.head("/healthz") as answer:
                assert (answer.status, await answer.text()) == (200, "")
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x16\x03\r\n\r\n")  # not HTTP
            writer.close()
            async with DeviceManager(served.kubelet.folder) as served.kubelet:
                await served.shows("all is well", **GOOD)
                assert await get("/readyz") == (200, "ok")
                served.gpus.report_xid(served.uuids[0], 79)
                served.gpus.report_xid(served.uuids[0], 13)
                served.gpus.report_xid(served.uuids[0], 123456)
                await served.say("1", "true")
                await served.shows("the card is drained", **FIRST_BAD)
                _, text = await get("/metrics")
                first, second = (f'uuid="{uuid}",index="{i}",model="Tesla T4"' for i, uuid in enumerate(served.uuids))
                assert f"aliquot_card_healthy{{{first}}} 0\n" in text
                assert f"aliquot_card_healthy{{{second}}} 1\n" in text
                assert f"aliquot_card_cordoned{{{second}}} 1\n" in text
                assert f"aliquot_card_memory_used_bytes{{{second}}} 0\n" in text
                for xid in ("79", "13", "other"):
                    assert f'aliquot_xid_errors_total{{uuid="{served.uuids[0]}",xid="{xid}"}} 1\n' in text


async def test_the_log_an_event_and_readyz_name_a_rival(served: Served) -> None:
    port = free_port()
    async with served.agent(health_port=port):
        await served.shows("all is well", **GOOD)
        async with rival(served.kubelet, ["nvidia0"]):
            await until(lambda: served.events("Node"), "it is told", passing=served.clock)
            assert served.events("Node") == [("RivalDevicePlugin", OFFERS)]
            async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                assert (answer.status, await answer.text()) == (503, OFFERS)
            assert served.kubelet.capacity() == {GPU_MEM: 1, GPU_COUNT: 2}


async def test_a_rival_for_another_resource_is_named_once(served: Served) -> None:
    port = free_port()
    async with served.agent(health_port=port):
        await served.shows("all is well", **GOOD)
        async with rival(served.kubelet, ["GPU-n1-0"], NVIDIA):
            await until(lambda: served.events("Node"), "it is told", passing=served.clock)
            assert served.events("Node") == [("RivalDevicePlugin", SELLS)]
            async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                assert (answer.status, await answer.text()) == (503, SELLS)


async def test_an_agent_without_a_driver_says_so_on_its_port(folder: Path, client: Client, clock: FakeClock) -> None:
    port = free_port()
    task = asyncio.create_task(agent.run(settings(folder, health_port=port), client, FakeDevices(), clock))
    await until(lambda: clock.asked, "it has looked for cards")
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/readyz") as answer:
        assert (answer.status, await answer.text()) == (503, "no card to serve: no driver here")
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/healthz") as answer:
        assert answer.status == 200, "a restart would bring no driver"
    with pytest.raises(BadConfig, match=f"--health-port: cannot listen on port {port}: "):
        await agent.run(settings(folder, health_port=port), client, FakeDevices(), clock)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# -- ids


async def _listed(node: AgentNode) -> dict[str, str]:
    """The health of each id of the memory resource, as the plugin tells it to a new listener."""
    async with rpc.channel(node.kubelet.folder / SOCKET) as channel:
        lists = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=wire.Empty.SerializeToString,
            response_deserializer=wire.ListAndWatchResponse.FromString,
        )(wire.Empty())
        listed = await lists.read()
        lists.cancel()
        assert isinstance(listed, wire.ListAndWatchResponse)
        return {device.ID: device.health for device in listed.devices}


async def test_containers_on_good_cards_keep_their_ids_when_another_card_fails(node: AgentNode) -> None:
    """kubelet gives each container ids that look like the other card's."""
    ids = {}
    for name, card in (("on-good", 1), ("on-failed", 0)):
        pod = await node.admitted(name, 5, card=card)
        await node.start(pod)
        ids[name] = _held(node, pod)
    assert ids["on-good"] == {f"GPU-n1-0-_-{unit}" for unit in range(5)}
    node.node_cards.see(make_cards(unhealthy=[0]))
    await until(lambda: node.kubelet.capacity() == HALF, "kubelet is told")
    listed = await _listed(node)
    unhealthy = {device for device, health in listed.items() if health == "Unhealthy"}
    assert len(listed) == 30
    assert len(unhealthy) == 15
    assert not unhealthy & ids["on-good"]
    assert ids["on-failed"] <= unhealthy
    node.node_cards.see(make_cards())
    await until(lambda: node.kubelet.capacity() == ALL, "the card is back")


async def test_the_ids_of_a_card_that_is_gone_stay_listed_while_a_container_holds_them(node: AgentNode) -> None:
    pod = await node.admitted("p", 15, card=0)
    await node.start(pod)
    other = await node.admitted("q", 3, card=1)
    await node.start(other)
    held = _held(node, other)
    node.node_cards.see(make_cards(mib=[15360]))
    assert held.isdisjoint(f"GPU-n1-0-_-{unit}" for unit in range(15))
    await until(lambda: node.kubelet.capacity() == HALF, "kubelet is told")
    listed = await _listed(node)
    assert {device for device, health in listed.items() if health == "Unhealthy"} == held


def _held(node: AgentNode, pod: Pod) -> set[str]:
    grants = checkpoint.read(node.kubelet.folder / CHECKPOINT)
    return {device for grant in grants if grant.pod_uid == pod.metadata.uid for device in grant.ids}


# -- the unit of memory


async def test_a_change_of_the_unit_is_refused_while_pods_hold_ids_in_the_old_one(served: Served) -> None:
    async with served.agent():
        await served.shows("all is well", **GOOD)
        pod = await _admitted(served, "p", 0)
    refused = pytest.RaisesExc(
        BadConfig,
        match="--memory-unit: 1 containers on this node hold aliyun.com/gpu-mem in units of 1024 MiB; set the unit "
        "back from 1 MiB, or delete their pods .*spec.nodeName=n1.* before you change it",
    )
    changed = settings(served.folder, memory_unit="MiB")
    with pytest.RaisesGroup(refused):
        await agent.run(changed, served.client, served.gpus, served.clock)
    assert read_inventory("n1", served.node()["metadata"]["annotations"][INVENTORY]).unit_mib == 1024
    served.kubelet.release(pod.metadata.uid)
    await served.client.delete(PODS, "p", "default", grace=0)
    async with served.agent(memory_unit="MiB"):
        offers = {GPU_MEM: 30720, GPU_COUNT: 2}
        await served.shows("the unit has changed", **GOOD | {"offers": offers})


async def test_a_node_that_gpushare_served_in_another_unit_is_not_taken_over_beneath_its_pods(served: Served) -> None:
    """gpushare leaves no inventory, but its unit follows from the capacity of the node."""
    async with served.agent(memory_unit="MiB"):
        await served.shows("the ids of a node in MiB", **GOOD | {"offers": {GPU_MEM: 30720, GPU_COUNT: 2}})
        await _admitted(served, "p", 0)
    await served.client.patch(NODES, "n1", {"metadata": {"annotations": {INVENTORY: None}}})
    capacity = {GPU_MEM: "30720", GPU_COUNT: "2"}
    await served.client.patch(NODES, "n1", {"status": {"capacity": capacity}}, part="status")
    refused = pytest.RaisesExc(BadConfig, match="in units of 1 MiB; set the unit back from 1024 MiB")
    with pytest.RaisesGroup(refused):
        await agent.run(settings(served.folder), served.client, served.gpus, served.clock)
    assert INVENTORY not in served.node()["metadata"].get("annotations", {})


async def test_what_the_api_server_refuses_is_told_once_and_tried_again(served: Served) -> None:
    # there are two conditions
    served.api.script("PATCH", "/nodes/n1/status$", *[answer(403, message="no")] * 4)
    served.api.script("POST", "/events$", answer(403, message="no events"))
    served.gpus.fail(served.uuids[0], "hot")
    with capture_logs() as logs:
        async with served.agent():
            await served.shows("the condition is written", **FIRST_BAD)
    warnings = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert warnings.count("cannot write the condition of the node, retrying") == 1
    assert warnings.count("cannot write an event") == 1
