"""Simulated cards: links, MIG instances, and cards that fail and return."""

import msgspec
import pytest

from aliquot.agent.devices import Machine, Usage
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.embedded.programs import container_id, usual_percent
from aliquot.errors import BadConfig
from aliquot.model import NodeGpus, Pod, Slice
from aliquot.model.links import Pcie, nvlinks, pcie
from tests.factories import pod_manifest

MIB = 2**20
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


def test_nothing_runs_on_a_new_card_and_a_lost_one_tells_nothing() -> None:
    source = SimulatedGpus("n1", [T4, T4])
    first, second = (gpu.uuid for gpu in source.read().gpus)
    idle = Usage(cores=0.0, memory_bytes=0, celsius=35, watts=10)
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


def test_programs_keep_cards_busy_and_their_owners_are_found() -> None:
    source = SimulatedGpus("n1", [T4, H100], {1: ("1g.10gb",)})
    card, _, instance = source.read().gpus
    pod = make_pod("a")
    for gpu, container in ((card, "main"), (instance, "side")):
        part = Slice(gpu.uuid, gpu.index, gpu.minor, cores=50, mib=4000)
        source.programs.start(pod, container, [part], percent=40)
    usage, owners = source.read().usage, source.programs.of(())
    assert (usage[card.uuid].cores, usage[instance.uuid].cores) == (0.4, None)
    assert (usage[card.uuid].watts, usage[card.uuid].celsius) == (34, 53)
    for gpu, container in ((card, "main"), (instance, "side")):
        shown = usage[gpu.uuid]
        assert 2000 * MIB < (shown.memory_bytes or 0) <= 4000 * MIB
        assert shown.processes is not None
        (process,) = shown.processes.running
        assert process.memory_bytes == shown.memory_bytes
        assert owners[process.pid].container == (pod.metadata.uid, container_id(pod.metadata.uid, container))
    source.programs.end(pod.metadata.uid)
    assert source.read().usage[card.uuid].memory_bytes == 0


@pytest.mark.parametrize(("cores", "mib", "most"), [(50, 100, 50), (0, 7680, 50), (100, 15360, 100)])
def test_a_pod_about_which_nobody_says_anything_uses_a_part_of_what_it_was_given(
    cores: int, mib: int, most: int
) -> None:
    parts = [Slice("GPU-1", 0, 0, cores, mib)]
    percents = {usual_percent(make_pod(f"pod-{number}"), parts, {"GPU-1": 15360}) for number in range(50)}
    assert 0.25 * most < min(percents) < max(percents) < most
    assert len(percents) > 5
    assert usual_percent(make_pod("a"), parts, {"GPU-1": 15360}) == usual_percent(
        make_pod("a"), parts, {"GPU-1": 15360}
    )


def make_pod(name: str) -> Pod:
    return msgspec.convert(pod_manifest(name), Pod)
