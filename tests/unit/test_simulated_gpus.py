"""Simulated cards: links, MIG instances, and cards that fail and return."""

import pytest

from aliquot.agent.devices import Machine, Usage
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.errors import BadConfig
from aliquot.model import NodeGpus
from aliquot.model.links import Pcie, nvlinks, pcie

T4, V100, H100 = "Tesla T4", "Tesla V100-SXM2-32GB", "NVIDIA H100 80GB HBM3"


def test_a_model_that_nobody_simulates_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadConfig, match="no simulated card is called Voodoo 2; there are Tesla T4, "):
        SimulatedGpus("n1", ["Voodoo 2"])


@pytest.mark.parametrize(
    ("models", "links"),
    [
        pytest.param([T4] * 4, [0, 0, 0], id="PCIe only"),
        pytest.param([V100] * 4, [2, 0, 0], id="pairs"),
        pytest.param([H100] * 4, [18, 18, 18], id="NVSwitch"),
        pytest.param([H100, H100, T4], [18, 0], id="another model"),
    ],
)
def test_the_nvlinks_of_the_first_card(models: list[str], links: list[int]) -> None:
    first, *others = SimulatedGpus("n1", models).read().gpus
    assert [link.uuid for link in first.links] == [gpu.uuid for gpu in others]
    assert [nvlinks(link.score) for link in first.links] == links


def test_cards_of_one_cpu_are_closer_than_those_of_two() -> None:
    gpus = SimulatedGpus("n1", [T4] * 4).read().gpus
    assert [gpu.numa for gpu in gpus] == [0, 0, 1, 1]
    assert [pcie(link.score) for link in gpus[0].links] == [Pcie.HOST_BRIDGE, Pcie.CROSS_CPU, Pcie.CROSS_CPU]


def test_a_cut_card_is_listed_with_its_instances_and_is_not_sold() -> None:
    gpus = SimulatedGpus("n1", [T4, H100], {1: ("1g.10gb", "3g.40gb")}).read().gpus
    cards = NodeGpus("n1", gpus, 1024)
    assert [(gpu.index, gpu.profile, gpu.mib) for gpu in gpus] == [
        (0, "", 15360),
        (1, "", 81559),
        (2010, "1g.10gb", 9728),
        (2020, "3g.40gb", 40192),
    ]
    assert {gpu.parent for gpu in gpus[2:]} == {gpus[1].uuid}
    assert [cards.sells(gpu) for gpu in gpus] == [True, False, True, True]
    assert len({gpu.uuid for gpu in gpus}) == 4


def test_nothing_runs_on_a_simulated_card_and_a_lost_one_tells_nothing() -> None:
    source = SimulatedGpus("n1", [T4, T4])
    first, second = (gpu.uuid for gpu in source.read().gpus)
    idle = Usage(cores=0.0, memory_bytes=0)
    assert source.read().usage == {first: idle, second: idle}
    source.fail(first, "hot")
    assert source.read().usage == {first: idle, second: idle}
    source.lose(first)
    assert source.read().usage == {second: idle}


def test_an_instance_has_its_card_s_device_node_and_two_of_its_own() -> None:
    source = SimulatedGpus("n1", [H100], {0: ("1g.10gb", "1g.10gb")})
    _, first, second = source.read().gpus
    card, caps = "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap"
    paths = [[node.path for node in source.edits(gpus).device_nodes] for gpus in ([first], [second], [first, second])]
    assert paths == [
        [card, f"{caps}3", f"{caps}4", "/dev/nvidiactl"],
        [card, f"{caps}5", f"{caps}6", "/dev/nvidiactl"],
        [card, f"{caps}3", f"{caps}4", f"{caps}5", f"{caps}6", "/dev/nvidiactl"],
    ]


def test_a_card_that_fails_takes_its_instances_with_it_and_returns() -> None:
    source = SimulatedGpus("n1", [T4, H100], {1: ("1g.10gb",)})
    before, seen = source.read(), list[Machine]()
    source.changed.subscribe(seen.append)
    source.fail(before.gpus[1].uuid, "XID 79")
    assert source.read() == seen[-1]
    assert [gpu.healthy for gpu in seen[-1].gpus] == [True, False, False]
    assert set(seen[-1].faults.values()) == {"XID 79"}
    source.recover(before.gpus[1].uuid)
    assert source.read() == seen[-1] == before
