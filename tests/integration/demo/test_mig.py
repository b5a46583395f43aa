"""MIG instances from the pod to its container, on nodes with the real agent and on simulated ones."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.app.demo.cluster import DemoCluster
from aliquot.app.demo.machines import Machine
from aliquot.dialects.protocol import sample
from aliquot.embedded.api import resources
from aliquot.kube import PODS
from tests.fakes import until

H100 = "NVIDIA H100 80GB HBM3"
CUT = {0: ("1g.10gb", "2g.20gb")}
ANY_1G = {"aliquot.io/mig": "1g.10gb"}


@pytest.fixture(params=[True, False], ids=["real agent", "simulated"])
async def demo(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[DemoCluster]:
    has_agent: bool = request.param
    machines = [
        Machine("whole", (H100,), ("nvidia",), has_agent, CUT),
        Machine("parts", (H100,), ("aliquot",), has_agent, CUT),
    ]
    async with DemoCluster(folder, machines) as running:
        yield running


def status(demo: DemoCluster, name: str) -> Any:
    return demo.cluster.registry.get(resources.PODS, "default", name).obj["status"]


@pytest.mark.parametrize(
    ("manifest", "node"),
    [
        pytest.param(sample("p", {"nvidia.com/mig-1g.10gb": "1"}), "whole", id="nvidia"),
        pytest.param(sample("p", {"aliquot.io/gpu": "1"}, annotations=ANY_1G), "parts", id="aliquot"),
    ],
)
async def test_a_pod_gets_an_instance_with_its_own_device_nodes(
    demo: DemoCluster, manifest: dict[str, Any], node: str
) -> None:
    _, instance, _ = demo.gpus[node].read().gpus
    await demo.client.create(PODS, manifest, "default")
    await until(lambda: status(demo, "p").get("phase") == "Running")
    ((_, found),) = demo.nodes[node].kubelet.inside.items()
    assert found.environment["NVIDIA_VISIBLE_DEVICES"] == instance.uuid
    caps = "/dev/nvidia-caps/nvidia-cap"
    assert found.devices == ["/dev/nvidia0", f"{caps}3", f"{caps}4", "/dev/nvidiactl"]


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "aliquot.io/gpu", "nvidia.com/mig-3g.40gb"])
async def test_neither_the_cut_card_nor_a_profile_that_it_lacks_is_sold(demo: DemoCluster, resource: str) -> None:
    await demo.client.create(PODS, sample("p", {resource: "1"}), "default")
    await until(lambda: "conditions" in status(demo, "p"))
    condition = status(demo, "p")["conditions"][0]
    assert condition["message"].startswith("0/2 nodes are available: ")
