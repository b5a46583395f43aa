"""NVIDIA's side of the vendor seam: cards and their health from NVML, device nodes, visible cards."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from aliquot.agent.devices import DeviceNode, DeviceSource
from aliquot.agent.nvidia import NvidiaDevices, visible_cards
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.errors import BadConfig, Refused
from aliquot.model import Gpu
from tests.factories import make_gpu

NVML: dict[str, Any] = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlDeviceGetCount": lambda: 1,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetUUID": lambda _: b"GPU-1",
    "nvmlDeviceGetMinorNumber": lambda _: 7,
    "nvmlDeviceGetName": lambda _: "Tesla T4",
    "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=15360 * 2**20),
    "nvmlDeviceGetNumaNodeId": lambda _: 1,
    "nvmlDeviceGetRemappedRows": lambda _: (0, 0, 0, 0),
}


def failing(code: int) -> Any:
    def fail(*_: object) -> None:
        raise pynvml.NVMLError(code)

    return fail


def cards(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> tuple[Gpu, ...]:
    for name, function in {**NVML, **functions}.items():
        monkeypatch.setattr(pynvml, name, function)
    return NvidiaDevices().read().gpus


def test_a_card_is_read_as_nvml_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cards(monkeypatch) == (Gpu("GPU-1", 0, 7, "Tesla T4", 15360, numa=1),)


@pytest.mark.parametrize(
    ("rows", "healthy"),
    [
        pytest.param(lambda _: (3, 1, 1, 0), True, id="rows were replaced"),
        pytest.param(lambda _: (3, 1, 0, 1), False, id="a row could not be replaced"),
        pytest.param(failing(pynvml.NVML_ERROR_NOT_SUPPORTED), True, id="a card without this check"),
        pytest.param(failing(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND), True, id="a driver without this check"),
    ],
)
def test_a_card_is_healthy_unless_nvml_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, rows: Any, healthy: bool
) -> None:
    (card,) = cards(monkeypatch, nvmlDeviceGetRemappedRows=rows)
    assert card.healthy is healthy


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        ({"nvmlInit": failing(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)}, "NVML does not start: Driver Not Loaded"),
        ({"nvmlDeviceGetHandleByIndex": failing(pynvml.NVML_ERROR_GPU_IS_LOST)}, "cannot list the cards: GPU is lost"),
    ],
    ids=["no driver", "a lost card"],
)
def test_a_driver_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, functions: Mapping[str, Any], text: str
) -> None:
    with pytest.raises(BadConfig, match=text):
        cards(monkeypatch, **functions)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_container_gets_its_cards_and_the_control_nodes_that_there_are(folder: Path) -> None:
    assert NvidiaDevices(folder).edits([make_gpu(minor=1)]).device_nodes == tuple(
        DeviceNode(f"/dev/{name}", f"{folder}/{name}") for name in ("nvidia1", "nvidiactl", "nvidia-uvm")
    )


def test_a_missing_device_node_is_a_refusal_with_its_name(folder: Path) -> None:
    with pytest.raises(Refused, match=f"{folder}/nvidia7 is missing"):
        NvidiaDevices(folder).edits([make_gpu(minor=1), make_gpu(1, minor=7)])


@pytest.mark.parametrize(
    ("environment", "uuids"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-n1-1,GPU-n1-0"}, {"GPU-n1-0", "GPU-n1-1"}),
        ({"NVIDIA_VISIBLE_DEVICES": ""}, set()),
        ({"A": "GPU-1"}, set()),
    ],
)
def test_the_cards_that_an_environment_names(environment: Mapping[str, str], uuids: set[str]) -> None:
    assert visible_cards(environment) == uuids


def test_simulated_cards_have_the_nodes_that_the_driver_would_make(folder: Path) -> None:
    simulated: DeviceSource = SimulatedGpus("n1", ["Tesla T4", "Tesla T4"])
    real: DeviceSource = NvidiaDevices(folder)
    gpus = simulated.read().gpus
    paths = [node.path for node in simulated.edits(gpus).device_nodes]
    assert paths == [node.path for node in real.edits(gpus).device_nodes if node.path != "/dev/nvidia-uvm"]
