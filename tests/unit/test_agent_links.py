"""What the agent tells of how cards are connected: their NUMA node and nothing else yet, and the pages say the same."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from aliquot.agent.nvidia import NvidiaDevices
from aliquot.model import NodeGpus
from aliquot.model.records import read_inventory, write_inventory

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from" / "elastic-gpu.md").read_text()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's library with two cards that an NVLink connects."""
    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda card: f"GPU-{card}",
        "nvmlDeviceGetMinorNumber": lambda card: card,
        "nvmlDeviceGetName": lambda _: "NVIDIA A100-SXM4-80GB",
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=80 * 2**30),
        "nvmlDeviceGetNumaNodeId": lambda card: card,
        "nvmlDeviceGetNvLinkState": lambda *_: pynvml.NVML_FEATURE_ENABLED,
        "nvmlDeviceGetTopologyCommonAncestor": lambda *_: pynvml.NVML_TOPOLOGY_SINGLE,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)


@pytest.mark.usefixtures("library")
def test_the_inventory_has_the_numa_node_of_a_card_and_no_links() -> None:
    published = read_inventory("n1", write_inventory(NodeGpus("n1", NvidiaDevices().read().gpus, 1024)))
    assert [(gpu.numa, gpu.links) for gpu in published.gpus] == [(0, ()), (1, ())]


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found is not None
    return found[1]


def test_the_page_for_elastic_gpu_claims_no_more() -> None:
    items = [" ".join(item.split()) for item in section("What is better").split("\n- ")]
    (claim,) = (item for item in items if "opology" in item)
    assert claim.startswith("From the original's roadmap: multi-card placement works. For topology-aware placement")
    assert claim.endswith("the policy exists, and our agent publishes which cards share a NUMA node.")
    assert "the agent does not publish NVLink and PCIe links yet" in " ".join(section("What is not there").split())
