"""Whether containers can get cards past the agent, as the Node and its events tell it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aliquot.agent.agent_events import AgentEvents
from aliquot.agent.guard_report import OPEN, GuardReport
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.agent.nvidia.container_runtime import NvidiaRuntime
from aliquot.agent.nvidia.driver_files import DriverFiles
from aliquot.agent.nvidia.injection import Injection
from aliquot.agent.nvidia.toolkit_spec import ToolkitSpecs
from aliquot.embedded.api import resources
from aliquot.kube import NODES, Client
from aliquot.kube.errors import Forbidden
from aliquot.model.admission import CARDS_GUARDED
from tests.factories import node_manifest
from tests.fakes import FakeClock, ScriptedApi, answer

DEFAULT = NvidiaRuntime(("nvidia",), is_default=True, config="/etc/nvidia-container-runtime/config.toml")
BY_CLASS = replace(DEFAULT, is_default=False)
CLOSED = replace(DEFAULT, from_environment=False)
REMEDY = (
    "once our specs carry the driver's files, set accept-nvidia-visible-devices-envvar-when-unprivileged = false in "
    "/etc/nvidia-container-runtime/config.toml, and restart the agent"
)


class Reported:
    """A Node, and what an agent reports of it that was started with this runtime of NVIDIA's."""

    def __init__(self, folder: Path, api: ScriptedApi, client: Client) -> None:
        self._folder = folder
        self._clock = FakeClock()
        self.client = client
        self.api = api
        api.registry.create(resources.NODES, "", node_manifest("n1"))

    async def report(self, runtime: NvidiaRuntime | None, *, is_complete: bool = True) -> None:
        driver = DriverFiles("/", str(self._folder))
        injection = Injection(ToolkitSpecs([]), driver, runtime, is_complete=is_complete)
        devices = NvidiaDevices(self._folder, injection=injection)
        events = AgentEvents(self.client, self._clock)
        reports = GuardReport(self.client, self._clock, devices, events)
        reports.see_node(await self.client.get(NODES, "n1"))
        await reports.report()
        await reports.report()

    @property
    def condition(self) -> dict[str, Any]:
        conditions = self.api.registry.get(resources.NODES, "", "n1").obj["status"]["conditions"]
        (found,) = (each for each in conditions if each["type"] == CARDS_GUARDED)
        return dict(found)

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(held.obj["reason"], held.obj["message"]) for held in self.api.store.snapshot("events")]


@pytest.fixture
async def node(folder: Path, scripted: ScriptedApi, client: Client) -> Reported:
    return Reported(folder, scripted, client)


@pytest.mark.parametrize(
    ("runtime", "who"),
    [
        pytest.param(DEFAULT, "every container", id="the default"),
        pytest.param(BY_CLASS, "every container of a RuntimeClass with handler nvidia", id="by a RuntimeClass"),
    ],
)
async def test_an_open_runtime_is_a_condition_and_one_event_with_the_way_out(
    node: Reported, runtime: NvidiaRuntime, who: str
) -> None:
    await node.report(runtime)
    said = node.condition
    text = f"{who} that asks for no GPU gets all cards if its image or pod sets NVIDIA_VISIBLE_DEVICES=all: {REMEDY}"
    assert (said["status"], said["reason"], said["message"]) == ("False", OPEN, text)
    assert node.events == [(OPEN, text)]
    await node.report(runtime)
    assert node.condition == said, "an agent that starts again has nothing new to say"
    assert len(node.events) == 1


@pytest.mark.parametrize("runtime", [CLOSED, None], ids=["it obeys nothing", "it is not there"])
async def test_the_condition_is_true_once_the_runtime_is_closed(node: Reported, runtime: NvidiaRuntime | None) -> None:
    await node.report(DEFAULT)
    await node.report(runtime)
    assert (node.condition["status"], node.condition["reason"]) == ("True", "CardsGuarded")
    assert len(node.events) == 1


async def test_mounts_can_be_a_way_of_their_own(node: Reported) -> None:
    await node.report(replace(CLOSED, from_mounts=True))
    assert node.condition["message"].startswith("every container gets the cards that it names as mounts of /dev/null")


async def test_nobody_knows_if_the_container_runtime_could_not_be_asked(node: Reported) -> None:
    await node.report(None, is_complete=False)
    assert (node.condition["status"], node.condition["reason"]) == ("Unknown", "RuntimeUnknown")
    assert node.events == []


async def test_an_event_that_is_refused_does_not_keep_the_condition_away(node: Reported) -> None:
    node.api.script("POST", "/events", answer(403, message="no"))
    await node.report(DEFAULT)
    assert node.condition["status"] == "False"


async def test_a_condition_that_is_refused_is_tried_again(node: Reported) -> None:
    node.api.script("PATCH", "/nodes/n1/status", answer(403, message="no"))
    with pytest.raises(Forbidden):
        await node.report(DEFAULT)
