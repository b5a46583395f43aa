"""Static MIG instances: each is a card of its own with a parent and a profile."""

from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.agent.nvidia import NvidiaDevices
from aliquot.model import Gpu, NodeGpus
from aliquot.model.records import read_inventory, write_inventory
from tests.fakes.nvml import FakeCard, FakeInstance, FakeNvml

A100 = "NVIDIA A100-SXM4-40GB"


@pytest.fixture
def card() -> FakeCard:
    instances = [FakeInstance("MIG-1", 9), None, FakeInstance("MIG-2", 2, mib=19968, name=f"{A100} MIG 3g.20gb")]
    return FakeCard("GPU-1", minor=3, model=A100, mib=40960, mig=True, instances=instances)


def read(root: Path, *cards: FakeCard) -> tuple[Gpu, ...]:
    nvml = FakeNvml(*cards)
    return NvidiaDevices(root, nvml=nvml, proc=root, sysfs=root, wait=nvml.wait).read().gpus


def test_an_instance_is_a_card_with_a_parent_and_a_profile(tmp_path: Path, card: FakeCard) -> None:
    parent = Gpu("GPU-1", 1, 3, A100, 40960, brand="BRAND_TESLA", bus_id="00000000:3B:00.0")
    small = replace(parent, uuid="MIG-1", index=2090, mib=4864, parent="GPU-1", profile="1g.5gb")
    large = replace(small, uuid="MIG-2", index=2020, mib=19968, profile="3g.20gb")
    whole = FakeCard("GPU-0", bus=1)
    gpus = read(tmp_path, whole, card)
    other = Gpu("GPU-0", 0, 0, "Tesla T4", 15360, brand="BRAND_TESLA", bus_id="00000000:01:00.0")
    assert gpus == (other, parent, large, small)
    cards = NodeGpus("n1", gpus, 1024)
    assert [gpu.uuid for gpu in gpus if cards.sells(gpu)] == ["GPU-0", "MIG-2", "MIG-1"]
    assert read_inventory("n1", write_inventory(cards)) == cards


def test_instances_come_and_go(tmp_path: Path, card: FakeCard) -> None:
    nvml = FakeNvml(card)
    source = NvidiaDevices(tmp_path, nvml=nvml, proc=tmp_path, sysfs=tmp_path, wait=nvml.wait)
    source.read()
    card.instances = [FakeInstance("MIG-3", 1), card.instances[0]]
    assert [(gpu.uuid, gpu.index) for gpu in source.read().gpus] == [("GPU-1", 0), ("MIG-3", 1010), ("MIG-1", 1090)]
    card.instances, card.mig = [], False
    assert [gpu.uuid for gpu in source.read().gpus] == ["GPU-1"]


@pytest.mark.parametrize(
    ("instance", "profile"),
    [
        (FakeInstance("MIG-1", 1, name=f"{A100} MIG 1g.5gb"), "1g.5gb"),
        (FakeInstance("MIG-1", 1, name=f"{A100} MIG 1g.10gb+me"), "1g.10gb+me"),
        (FakeInstance("MIG-1", 1, name=f"{A100} MIG 1c.3g.20gb"), "1c.3g.20gb"),
        (FakeInstance("MIG-1", 1, name=A100, mib=4864), "1g.5gb"),
        (FakeInstance("MIG-1", 1, name=A100, mib=9856), "1g.10gb"),
        (FakeInstance("MIG-1", 1, name=A100, mib=19968, slices=(3, 3)), "3g.20gb"),
        (FakeInstance("MIG-1", 1, name=A100, mib=19968, slices=(1, 3)), "1c.3g.20gb"),
        (FakeInstance("MIG-1", 1, name=A100, mib=40192, slices=(7, 7)), "7g.40gb"),
    ],
    ids=lambda value: value.name if isinstance(value, FakeInstance) else value,
)
def test_the_profile_of_an_instance(tmp_path: Path, card: FakeCard, instance: FakeInstance, profile: str) -> None:
    card.instances = [instance]
    assert read(tmp_path, card)[1].profile == profile


@pytest.mark.parametrize(("mib", "profile"), [(9728, "1g.10gb"), (40192, "3g.40gb")])
def test_the_profile_on_a_card_of_80_gib(tmp_path: Path, mib: int, profile: str) -> None:
    slices = (3, 3) if mib > 20000 else (1, 1)
    instance = FakeInstance("MIG-1", 1, name="NVIDIA A100-SXM4-80GB", mib=mib, slices=slices)
    assert read(tmp_path, FakeCard("GPU-1", mib=81920, mig=True, instances=[instance]))[1].profile == profile
