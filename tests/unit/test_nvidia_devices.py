"""NVIDIA's side of the vendor seam: what is read of a card, its health, device nodes, visible cards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml
import pytest

from aliquot.agent.devices import DeviceNode, DeviceSource, Mount, Usage
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.agent.nvidia.container_runtime import NvidiaRuntime
from aliquot.agent.nvidia.driver_files import DriverFiles
from aliquot.agent.nvidia.injection import Injection
from aliquot.agent.nvidia.toolkit_spec import ToolkitSpecs
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.errors import NoDriver, Refused
from aliquot.model import Gpu
from tests.factories import make_gpu
from tests.fakes.nvml import MIB, FakeCard, FakeInstance, FakeNvml


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    return tmp_path


def devices(nvml: FakeNvml, root: Path) -> NvidiaDevices:
    return NvidiaDevices(root, nvml=nvml, proc=root / "proc", sysfs=root / "sys", wait=nvml.wait)


def test_a_card_is_read_as_nvml_reports_it(tmp_path: Path) -> None:
    card = FakeCard("GPU-1", minor=7, model="Tesla T4", mib=15360, numa=1)
    machine = devices(FakeNvml(card, driver="550.90.07"), tmp_path).read()
    read = Gpu("GPU-1", 0, 7, "Tesla T4", 15360, numa=1, brand="BRAND_TESLA", bus_id="00000000:3B:00.0")
    assert machine.gpus == (read,)
    assert (machine.driver, machine.faults) == ("550.90.07", {})


@pytest.mark.parametrize(
    ("number", "brand"), [(15, "BRAND_GEFORCE_RTX"), (99, "BRAND_UNKNOWN"), (None, "BRAND_UNKNOWN")]
)
def test_a_brand_that_nobody_knows_fails_no_card(tmp_path: Path, number: int | None, brand: str) -> None:
    (gpu,) = devices(FakeNvml(FakeCard("GPU-1", brand=number)), tmp_path).read().gpus
    assert gpu.brand == brand


@pytest.mark.parametrize(
    ("kernel", "nvml", "numa"),
    [
        pytest.param("1\n", None, 1, id="the kernel knows"),
        pytest.param("0\n", 8, 0, id="the card's memory is a node of its own"),
        pytest.param("-1\n", None, None, id="a machine without NUMA"),
        pytest.param(None, 1, 1, id="only NVML knows"),
        pytest.param(None, None, None, id="nobody knows"),
    ],
)
def test_the_numa_node_is_that_of_the_closest_cpu(
    tmp_path: Path, kernel: str | None, nvml: int | None, numa: int | None
) -> None:
    if kernel is not None:
        pci = tmp_path / "sys" / "bus" / "pci" / "devices" / "0000:3b:00.0"
        pci.mkdir(parents=True)
        (pci / "numa_node").write_text(kernel)
    (gpu,) = devices(FakeNvml(FakeCard("GPU-1", bus=0x3B, numa=nvml)), tmp_path).read().gpus
    assert gpu.numa == numa


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        pytest.param({}, "", id="nothing is known of its health"),
        pytest.param({"remapped_rows": (3, 1, 1, 0), "uncorrected": 2}, "", id="rows were replaced or wait for it"),
        pytest.param(
            {"remapped_rows": (3, 1, 0, 1)}, "a broken row of its memory could not be replaced", id="broken memory"
        ),
        pytest.param(
            {"remapped_rows": (3, 1, 1, 1), "uncorrected": 2},
            "a broken row of its memory could not be replaced; 2 uncorrected ECC errors since the driver was loaded; "
            "more rows wait for the next reset",
            id="broken memory and its errors",
        ),
        pytest.param({"retired_pages": (20, 39), "has_pending_pages": False, "uncorrected": 2}, "", id="59 pages"),
        pytest.param(
            {"retired_pages": (20, 40), "has_pending_pages": False},
            "60 pages of its memory are broken, and NVIDIA replaces cards from 60 on",
            id="60 pages",
        ),
        pytest.param(
            {"retired_pages": (1, 0), "has_pending_pages": True, "uncorrected": 0}, "", id="a page waits, no harm done"
        ),
        pytest.param(
            {"retired_pages": (0, 1), "has_pending_pages": True, "uncorrected": 2},
            "a broken page of its memory is in use until the next reset; 2 uncorrected ECC errors so far",
            id="a broken page is in use",
        ),
        pytest.param(
            {"remapped_rows": (0, 0, 0, 0), "retired_pages": (60, 60)}, "", id="a card that remaps rows has no pages"
        ),
        pytest.param({"recovery_action": 0}, "", id="the driver asks for nothing"),
        pytest.param({"recovery_action": 1}, "the driver asks to reset it", id="the driver asks for a reset"),
        pytest.param({"recovery_action": 5}, "", id="the driver asks for something that is not about the card"),
        pytest.param(
            {"recovery_action": 99},
            "the driver asks to do something that Aliquot does not know (action 99)",
            id="the driver asks for something new",
        ),
        pytest.param({"celsius": 95, "shutdown_celsius": 96}, "", id="warm"),
        pytest.param({"celsius": 95}, "", id="no threshold"),
        pytest.param(
            {"celsius": 96, "shutdown_celsius": 96}, "it has 96 degrees Celsius and shuts down at 96", id="hot"
        ),
        pytest.param({"mig": True}, "MIG is enabled and it has no MIG instance", id="MIG without instances"),
        pytest.param({"mig": False}, "", id="without MIG"),
    ],
)
def test_a_card_is_healthy_unless_nvml_says_otherwise(tmp_path: Path, state: Mapping[str, Any], fault: str) -> None:
    machine = devices(FakeNvml(FakeCard("GPU-1", **state)), tmp_path).read()
    assert [gpu.healthy for gpu in machine.gpus] == [not fault]
    assert machine.faults == ({"GPU-1": fault} if fault else {})


def test_a_card_tells_how_busy_it_is(tmp_path: Path) -> None:
    card = FakeCard("GPU-1", used_mib=1024, util=73, watts=250.5, celsius=61)
    machine = devices(FakeNvml(card), tmp_path).read()
    assert machine.usage == {"GPU-1": Usage(cores=0.73, memory_bytes=1024 * MIB, celsius=61, watts=250.5)}


def test_what_a_card_cannot_tell_is_unknown_and_not_zero(tmp_path: Path) -> None:
    assert devices(FakeNvml(FakeCard("GPU-1")), tmp_path).read().usage == {"GPU-1": Usage(memory_bytes=0)}


def test_a_mig_instance_tells_its_own_memory_only(tmp_path: Path) -> None:
    card = FakeCard("GPU-1", mig=True, instances=[FakeInstance("MIG-1", 9, used_mib=7)], used_mib=20, watts=80)
    machine = devices(FakeNvml(card), tmp_path).read()
    assert machine.usage == {
        "GPU-1": Usage(memory_bytes=20 * MIB, watts=80),
        "MIG-1": Usage(memory_bytes=7 * MIB),
    }


def test_a_card_that_cools_down_is_healthy_again(tmp_path: Path) -> None:
    card = FakeCard("GPU-1", celsius=99, shutdown_celsius=96)
    source = devices(FakeNvml(card), tmp_path)
    assert not source.read().gpus[0].healthy
    card.celsius = 60
    assert source.read().gpus[0].healthy


def test_functions_that_an_old_driver_lacks_fail_no_card(tmp_path: Path) -> None:
    nvml = FakeNvml(FakeCard("GPU-1"), FakeCard("GPU-2", minor=1, bus=0x5E))
    too_new = {
        "nvmlDeviceGetBrand",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetNumaNodeId",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetRetiredPages",
        "nvmlDeviceGetRetiredPagesPendingStatus",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetTemperatureThreshold",
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlSystemGetCudaDriverVersion",
        "nvmlSystemGetDriverVersion",
    }
    nvml.errors = dict.fromkeys(too_new, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    machine = devices(nvml, tmp_path).read()
    assert [(gpu.uuid, gpu.healthy) for gpu in machine.gpus] == [("GPU-1", True), ("GPU-2", True)]
    assert machine.driver == ""


LIBRARY = "is the NVIDIA driver installed and loaded, and its libnvidia-ml.so.1 visible here?"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, f"NVML does not work: NVML Shared Library Not Found; {LIBRARY}"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, f"NVML does not work: Driver Not Loaded; {LIBRARY}"),
    ],
)
def test_a_machine_without_a_driver_says_what_to_check(tmp_path: Path, error: int, text: str) -> None:
    nvml = FakeNvml(FakeCard("GPU-1"))
    nvml.init_error = error
    with pytest.raises(NoDriver) as raised:
        devices(nvml, tmp_path).read()
    assert str(raised.value) == text


def test_a_machine_without_cards_says_so_and_shows_them_once_they_are_there(tmp_path: Path) -> None:
    nvml = FakeNvml()
    source = devices(nvml, tmp_path)
    with pytest.raises(NoDriver, match="the driver lists no card; `lspci`"):
        source.read()
    nvml.cards = [FakeCard("GPU-1")]
    assert [gpu.uuid for gpu in source.read().gpus] == ["GPU-1"]


# -- containers


def test_a_container_gets_its_cards_and_the_control_nodes_that_there_are(folder: Path) -> None:
    assert NvidiaDevices(folder).edits([make_gpu(minor=1)]).device_nodes == tuple(
        DeviceNode(f"/dev/{name}", f"{folder}/{name}") for name in ("nvidia1", "nvidiactl", "nvidia-uvm")
    )


def test_a_container_also_gets_the_drivers_files_and_what_nvidias_runtime_reads(folder: Path) -> None:
    host = folder / "host"
    for name in ("libcuda.so.570.1", "libnvidia-ml.so.1"):
        (host / "usr/lib64").mkdir(parents=True, exist_ok=True)
        (host / "usr/lib64" / name).touch()
    runtime = NvidiaRuntime(("nvidia",), is_default=True)
    injection = Injection(ToolkitSpecs([host / "cdi"]), DriverFiles("/", str(host)), runtime)
    edits = NvidiaDevices(folder, injection=injection).edits([make_gpu(minor=1)])
    assert [node.path for node in edits.device_nodes] == ["/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert edits.environment == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert Mount("/usr/lib64/libcuda.so.570.1", "/usr/lib64/libcuda.so.570.1") in edits.mounts


def test_the_nodes_of_the_switch_and_of_the_first_imex_channel_come_along(folder: Path) -> None:
    (folder / "nvidia-caps-imex-channels").mkdir()
    for name in ("nvidia-nvswitchctl", "nvidia-caps-imex-channels/channel0", "nvidia-caps-imex-channels/channel1"):
        (folder / name).touch()
    paths = [node.path for node in NvidiaDevices(folder).edits([make_gpu(minor=1)]).device_nodes]
    assert paths[3:] == ["/dev/nvidia-nvswitchctl", "/dev/nvidia-caps-imex-channels/channel0"]


def test_a_missing_device_node_is_a_refusal_with_its_name(folder: Path) -> None:
    with pytest.raises(Refused, match=f"{folder}/nvidia7 is missing"):
        NvidiaDevices(folder).edits([make_gpu(minor=1), make_gpu(1, minor=7)])


def cut_card(folder: Path) -> NvidiaDevices:
    """Card 1 with two instances, of which the driver lists only the first among its capabilities."""
    (folder / "nvidia-caps").mkdir()
    for minor in (12, 13):
        (folder / "nvidia-caps" / f"nvidia-cap{minor}").touch()
    (folder / "proc" / "driver" / "nvidia-caps").mkdir(parents=True)
    lines = "config 1\nmonitor 2\ngpu1/gi9/access 12\ngpu1/gi9/ci0/access 13\ngpu0/gi9/access 21\n"
    (folder / "proc" / "driver" / "nvidia-caps" / "mig-minors").write_text(lines)
    card = FakeCard("GPU-1", minor=1, mig=True, instances=[FakeInstance("MIG-1", 9), FakeInstance("MIG-2", 10)])
    return devices(FakeNvml(card), folder)


def test_a_container_gets_the_nodes_that_open_its_mig_instance(folder: Path) -> None:
    source = cut_card(folder)
    _, first, _ = source.read().gpus
    assert [node.path for node in source.edits([first]).device_nodes] == [
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
    ]


def test_a_mig_instance_that_cannot_be_opened_is_a_refusal(folder: Path) -> None:
    source = cut_card(folder)
    _, first, second = source.read().gpus
    with pytest.raises(Refused, match="mig-minors does not list 'gpu1/gi10/access', so the MIG instance"):
        source.edits([second])
    with pytest.raises(Refused, match="the driver does not list the MIG instance MIG-3"):
        source.edits([make_gpu(uuid="MIG-3", parent="GPU-1")])
    (folder / "proc" / "driver" / "nvidia-caps" / "mig-minors").unlink()
    with pytest.raises(Refused, match=r"mig-minors cannot be read, so the MIG instance .*No such file"):
        source.edits([first])


def test_simulated_cards_have_the_nodes_that_the_driver_would_make(folder: Path) -> None:
    simulated: DeviceSource = SimulatedGpus("n1", ["Tesla T4", "Tesla T4"])
    real: DeviceSource = NvidiaDevices(folder)
    gpus = simulated.read().gpus
    paths = [node.path for node in simulated.edits(gpus).device_nodes]
    assert paths == [node.path for node in real.edits(gpus).device_nodes if node.path != "/dev/nvidia-uvm"]
