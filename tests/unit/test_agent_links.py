"""What the agent tells of how cards are connected, and that the pages say the same."""

import re
from pathlib import Path

import pynvml
import pytest

from aliquot.agent.nvidia import NvidiaDevices
from aliquot.model import NodeGpus
from aliquot.model.links import NVLINK, Pcie
from aliquot.model.records import read_inventory, write_inventory
from tests.fakes.nvml import SWITCH, FakeCard, FakeNvml

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from" / "elastic-gpu.md").read_text()


def published(root: Path, *cards: FakeCard, missing: str = "") -> dict[str, dict[str, int]]:
    """The links of each card as a scheduler reads them from the Node."""
    for place, card in enumerate(cards):
        card.bus = place + 1
    nvml = FakeNvml(*cards)
    nvml.errors[missing] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    source = NvidiaDevices(root, nvml=nvml, proc=root, sysfs=root, wait=nvml.wait)
    inventory = read_inventory("n1", write_inventory(NodeGpus("n1", source.read().gpus, 1024)))
    return {gpu.uuid: {link.uuid: link.score for link in gpu.links} for gpu in inventory.gpus}


@pytest.mark.parametrize(
    ("ancestor", "score"),
    [
        (pynvml.NVML_TOPOLOGY_INTERNAL, Pcie.SAME_BOARD),
        (pynvml.NVML_TOPOLOGY_SINGLE, Pcie.ONE_SWITCH),
        (pynvml.NVML_TOPOLOGY_MULTIPLE, Pcie.SEVERAL_SWITCHES),
        (pynvml.NVML_TOPOLOGY_HOSTBRIDGE, Pcie.HOST_BRIDGE),
        (pynvml.NVML_TOPOLOGY_NODE, Pcie.SAME_CPU),
        (pynvml.NVML_TOPOLOGY_SYSTEM, Pcie.CROSS_CPU),
    ],
)
def test_the_path_between_two_cards(tmp_path: Path, ancestor: int, score: int) -> None:
    links = published(tmp_path, FakeCard("a", ancestors={"b": ancestor}), FakeCard("b"))
    assert links == {"a": {"b": score}, "b": {"a": score}}


def test_cards_without_a_known_path_have_no_link(tmp_path: Path) -> None:
    assert published(tmp_path, FakeCard("a"), FakeCard("b")) == {"a": {}, "b": {}}


@pytest.mark.parametrize("missing", ["", "nvmlDeviceGetNvLinkRemoteDeviceType"], ids=["", "an old driver"])
def test_nvlinks_between_two_cards_count_if_they_are_up(tmp_path: Path, missing: str) -> None:
    one_switch = {"b": pynvml.NVML_TOPOLOGY_SINGLE}
    cards = FakeCard("a", ancestors=one_switch, nvlinks=["b", "", "b", "c"]), FakeCard("b", nvlinks=["a", "a"])
    links = published(tmp_path, *cards, FakeCard("c", nvlinks=["", "a"]), missing=missing)
    assert links == {
        "a": {"b": 2 * NVLINK + Pcie.ONE_SWITCH, "c": NVLINK},
        "b": {"a": 2 * NVLINK + Pcie.ONE_SWITCH},
        "c": {"a": NVLINK},
    }


def test_through_switches_every_card_reaches_every_other_with_all_its_links(tmp_path: Path) -> None:
    full, broken = [SWITCH] * 12, [SWITCH] * 10 + ["", ""]
    links = published(tmp_path, FakeCard("a", nvlinks=full), FakeCard("b", nvlinks=full), FakeCard("c", nvlinks=broken))
    assert links == {
        "a": {"b": 12 * NVLINK, "c": 10 * NVLINK},
        "b": {"a": 12 * NVLINK, "c": 10 * NVLINK},
        "c": {"a": 10 * NVLINK, "b": 10 * NVLINK},
    }


def test_a_card_that_fails_keeps_its_links_and_paths_are_asked_for_once(tmp_path: Path) -> None:
    a, b = FakeCard("a", bus=1, ancestors={"b": pynvml.NVML_TOPOLOGY_SINGLE}), FakeCard("b", bus=2)
    nvml = FakeNvml(a, b)
    source = NvidiaDevices(tmp_path, nvml=nvml, proc=tmp_path, sysfs=tmp_path, wait=nvml.wait)
    links = [gpu.links for gpu in source.read().gpus]
    assert all(links)
    b.error = pynvml.NVML_ERROR_GPU_IS_LOST
    assert [gpu.links for gpu in source.read().gpus] == links
    b.error = pynvml.NVML_SUCCESS
    assert [gpu.links for gpu in source.read().gpus] == links
    assert nvml.calls.count("nvmlDeviceGetTopologyCommonAncestor b") == 1


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found is not None
    return " ".join(found[1].split())


def test_the_page_for_elastic_gpu_says_the_same() -> None:
    assert "our agent publishes which cards share a NUMA node, a PCIe switch or NVLinks." in section("What is better")
    assert "opology" not in section("What is not there")
