"""The cards that the answer of a device plugin names, whoever's it is."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.agent.devices import ContainerEdits, DeviceNode, Mount
from aliquot.agent.nvidia import NvidiaDevices, visible_cards
from tests.factories import make_cards, make_gpu


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the device nodes of two cards."""
    for minor in range(2):
        (tmp_path / f"nvidia{minor}").touch()
    return tmp_path


def _visible(value: str, *mounted: str) -> ContainerEdits:
    mounts = tuple(Mount(path, "/dev/null") for path in mounted)
    return ContainerEdits({"NVIDIA_VISIBLE_DEVICES": value}, mounts=mounts)


FOLDER_OF_MOUNTS = "/var/run/nvidia-container-devices"


@pytest.mark.parametrize(
    ("edits", "names", "indexes"),
    [
        pytest.param(_visible("GPU-n1-1,GPU-n1-0"), (), {0, 1}, id="UUIDs"),
        pytest.param(_visible("1"), (), {1}, id="gpushare's index"),
        pytest.param(_visible("all"), (), {0, 1}, id="all"),
        pytest.param(_visible(""), (), set(), id="nothing"),
        pytest.param(_visible("none"), (), set(), id="none, as elastic-gpu writes"),
        pytest.param(_visible("void"), ("k8s.device-plugin.nvidia.com/gpu=GPU-n1-1",), {1}, id="NVIDIA's CDI device"),
        pytest.param(_visible("void"), ("example.com/nic=GPU-n1-1",), set(), id="CDI device of another vendor"),
        pytest.param(_visible(FOLDER_OF_MOUNTS, f"{FOLDER_OF_MOUNTS}/GPU-n1-0", "/etc/1"), (), {0}, id="mounts"),
        pytest.param(ContainerEdits({"A": "GPU-n1-1"}), (), set(), id="another variable"),
    ],
)
def test_the_cards_that_an_answer_names(edits: ContainerEdits, names: Sequence[str], indexes: set[int]) -> None:
    gpus = make_cards().gpus
    assert visible_cards(edits, gpus, names) == {gpus[index].uuid for index in indexes}


@pytest.mark.parametrize(
    ("edits", "names"),
    [
        pytest.param(_visible("1:0"), (), id="NVIDIA's plugin with the strategy index"),
        pytest.param(_visible("GPU-n1-1:0"), (), id="by the card's UUID"),
        pytest.param(_visible("MIG-GPU-n1-1/7/0"), (), id="drivers before 470"),
        pytest.param(_visible("void"), ("nvidia.com/gpu=1:0",), id="CDI device by index"),
        pytest.param(_visible("void"), ("nvidia.com/gpu=mig1:0",), id="CDI device by kind and index"),
    ],
)
def test_an_instance_without_its_uuid_may_be_each_instance_of_its_card(
    edits: ContainerEdits, names: Sequence[str]
) -> None:
    instances = [make_gpu(10 + n, uuid=f"MIG-{n}", parent="GPU-n1-1", profile="1g.5gb") for n in range(2)]
    elsewhere = make_gpu(20, uuid="MIG-2", parent="GPU-n1-0", profile="1g.5gb")
    assert visible_cards(edits, [make_gpu(0), make_gpu(1), *instances, elsewhere], names) == {"MIG-0", "MIG-1"}


def test_a_cdi_spec_may_number_cards_by_their_kind() -> None:
    assert visible_cards(_visible("void"), make_cards().gpus, ["nvidia.com/gpu=gpu1"]) == {"GPU-n1-1"}


def test_a_card_that_is_not_on_the_node_is_named_as_it_stands() -> None:
    assert visible_cards(_visible("GPU-gone"), make_cards().gpus) == {"GPU-gone"}


def test_without_names_the_device_nodes_tell_the_cards_also_through_links(folder: Path) -> None:
    gpus = [make_gpu(0, minor=1), make_gpu(1, minor=0)]
    (folder / "elastic-gpu-0a1b2c3d-0").symlink_to("/dev/nvidia0")
    direct = ContainerEdits(device_nodes=(DeviceNode("/dev/nvidia1", "/dev/nvidia1"),))
    linked = replace(
        _visible("none"), device_nodes=(DeviceNode("/host/dev/elastic-gpu-0a1b2c3d-0", "/dev/elastic-gpu-0a1b2c3d-0"),)
    )
    seen = [NvidiaDevices(folder).visible_cards(edits, gpus) for edits in (direct, linked)]
    assert seen == [{gpus[0].uuid}, {gpus[1].uuid}]
