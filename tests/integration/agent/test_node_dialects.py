"""Which dialects an agent serves that no flag tells: those of its Node's labels, also after they have changed."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aliquot import agent
from aliquot.embedded.api import resources
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.kube import NODES, Client
from tests.factories import GPU_MEM, node_manifest
from tests.fakes import FakeClock, ScriptedApi, answer, until
from tests.integration.agent.test_agent import CARDS, FakeDevices, settings

CORE = "tencent.com/vcuda-core"
OURS = "dialect.aliquot.io/"


@asynccontextmanager
async def running(folder: Path, client: Client, clock: FakeClock) -> AsyncIterator[DeviceManager]:
    async with DeviceManager(folder / "device-plugins") as kubelet:
        devices = FakeDevices(*CARDS.gpus)
        task = asyncio.create_task(agent.run(settings(folder, dialects=()), client, devices, clock))
        yield kubelet
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def offers(kubelet: DeviceManager, clock: FakeClock, *names: str) -> None:
    """kubelet has exactly these resources to offer; it never forgets one, but has 0 of it."""
    await until(
        lambda: (
            {name for name, count in kubelet.capacity().items() if count} >= set(names)
            and all(name in names for name, count in kubelet.capacity().items() if count and name in (GPU_MEM, CORE))
        ),
        f"kubelet offers {', '.join(names) or 'nothing'}",
        passing=clock,
    )


async def label(client: Client, **labels: str | None) -> None:
    await client.patch(NODES, "n1", {"metadata": {"labels": labels}})


def make(api: ScriptedApi, labels: Mapping[str, str]) -> None:
    manifest = node_manifest("n1")
    manifest["metadata"]["labels"] = dict(labels)
    api.registry.create(resources.NODES, "", manifest)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        pytest.param({f"{OURS}tencent": "true"}, [CORE], id="our own"),
        pytest.param({f"{OURS}tencent": "true", f"{OURS}gpushare": "true"}, [CORE, GPU_MEM], id="two of ours"),
        pytest.param({"gpushare": "true"}, [GPU_MEM], id="gpushare's"),
        pytest.param({"nvidia-device-enable": "enable"}, [CORE], id="gpu-manager's"),
        pytest.param({f"{OURS}tencent": "true", "gpushare": "true"}, [CORE], id="ours outrank an original's"),
    ],
)
async def test_the_labels_say_what_is_served(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock, labels: dict[str, str], names: list[str]
) -> None:
    make(scripted, labels)
    async with running(folder, client, clock) as kubelet:
        await offers(kubelet, clock, *names)


async def test_other_labels_change_what_is_served(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    make(scripted, {"gpushare": "true"})
    async with running(folder, client, clock) as kubelet:
        await offers(kubelet, clock, GPU_MEM)
        await label(client, **{f"{OURS}tencent": "true", "team": "a"})
        await offers(kubelet, clock, CORE)
        await label(client, **{f"{OURS}tencent": None})
        await offers(kubelet, clock, GPU_MEM)
        await label(client, gpushare=None)
        await offers(kubelet, clock)
        await label(client, gpushare="true")
        await offers(kubelet, clock, GPU_MEM)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        pytest.param({}, "label the node dialect.aliquot.io/NAME=true, where NAME is one of aliquot", id="none"),
        pytest.param({f"{OURS}nobody": "true"}, "unknown dialect nobody", id="an unknown one"),
        pytest.param(
            {f"{OURS}hami": "true", f"{OURS}nvidia": "true"}, "both use nvidia.com/gpu", id="two that share a resource"
        ),
    ],
)
async def test_labels_that_name_nothing_to_serve_are_told_once_and_waited_for(
    folder: Path,
    client: Client,
    scripted: ScriptedApi,
    clock: FakeClock,
    labels: dict[str, str],
    told: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    make(scripted, labels)
    async with running(folder, client, clock) as kubelet:
        await until(lambda: clock.asked.count(10.0) >= 3, "it looks again", passing=clock)
        lines = [line for line in capfd.readouterr().out.splitlines() if "serves no dialect yet" in line]
        assert len(lines) == 1
        assert told in lines[0]
        await label(client, **{**dict.fromkeys(labels), "gpushare": "true"})
        await offers(kubelet, clock, GPU_MEM)


async def test_a_node_that_is_not_there_is_told_with_what_to_check_and_waited_for(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock, capfd: pytest.CaptureFixture[str]
) -> None:
    async with running(folder, client, clock) as kubelet:
        await until(lambda: clock.asked.count(10.0) >= 2, "it looks again", passing=clock)
        assert capfd.readouterr().out.count("the cluster has no node n1: is --node-name right") == 1
        make(scripted, {"gpushare": "true"})
        await offers(kubelet, clock, GPU_MEM)


async def test_an_api_server_that_is_away_is_waited_for(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    make(scripted, {"gpushare": "true"})
    scripted.script("GET", "/nodes/n1$", answer(503, message="not yet"))
    async with running(folder, client, clock) as kubelet:
        await offers(kubelet, clock, GPU_MEM)
