"""A kubelet that ignores CDI devices would start containers without their cards, and nobody would notice."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from aliquot.agent.cdi_choice import uses_cdi
from aliquot.agent.kubelet_version import kubelet_version, passes_cdi_devices
from aliquot.embedded.api import resources
from aliquot.errors import BadConfig
from aliquot.kube import Client
from tests.factories import node_manifest
from tests.fakes import FakeClock, ScriptedApi, answer, until


@pytest.mark.parametrize(
    ("version", "does"),
    [
        ("v1.19.16", False),
        ("v1.28.15-gke.100", False),
        ("v1.29.0", True),
        ("v1.37.0+k3s1", True),
        ("v2.0.0", True),
        ("", True),
        ("unknown", True),
    ],
)
def test_which_kubelets_pass_cdi_devices_on(version: str, does: bool) -> None:
    assert passes_cdi_devices(version) is does


async def test_on_an_older_kubelet_the_agent_does_without_cdi_and_says_why(folder: Path) -> None:
    place = folder / "cdi", folder / "kubelet.sock"
    with capture_logs() as told:
        assert not await uses_cdi("auto", "v1.28.15", None, *place)
        assert await uses_cdi("auto", "v1.29.0", None, *place)
    why = "kubelet v1.28.15 does not pass CDI devices to the container runtime; 1.29 and newer ones do"
    assert told[0]["why"] == why
    with pytest.raises(BadConfig, match="does not pass CDI devices"):
        await uses_cdi("cdi", "v1.28.15", None, *place)


async def test_the_node_tells_the_version(client: Client, scripted: ScriptedApi, clock: FakeClock) -> None:
    assert await kubelet_version(client, "n1", clock) == "", "there is no Node yet"
    node = node_manifest("n1")
    node["status"]["nodeInfo"] = {"kubeletVersion": "v1.28.15"}
    scripted.registry.create(resources.NODES, "", node)
    assert await kubelet_version(client, "n1", clock) == "v1.28.15"


async def test_an_api_server_that_is_away_is_waited_for_and_told_once(
    client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    scripted.script("GET", "/nodes/n1$", *[answer(500, message="no")] * 2)
    with capture_logs() as told:
        asked = asyncio.create_task(kubelet_version(client, "n1", clock))
        await until(asked.done, "it has its answer", passing=clock)
    assert [line["event"] for line in told] == ["cannot read the version of kubelet, retrying"]
    assert await asked == ""
