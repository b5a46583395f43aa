"""The processes on a card, whatever struct the driver fills, and their samples."""

import time
from pathlib import Path

import pynvml
import pytest

from aliquot.agent.devices import GpuProcess, Usage
from aliquot.agent.nvidia import NvidiaDevices
from tests.fakes.nvml import MIB, SWITCH, FakeCard, FakeInstance, FakeNvml, FakeProcess


def devices(nvml: FakeNvml, root: Path, every: float = 0.0) -> NvidiaDevices:
    proc, sysfs = root / "proc", root / "sys"
    return NvidiaDevices(root, nvml=nvml, proc=proc, sysfs=sysfs, wait=nvml.wait, processes_every=every)


def processes(node: NvidiaDevices, uuid: str = "GPU-1") -> dict[int, GpuProcess]:
    found = node.read().usage[uuid].processes
    assert found is not None
    return {process.pid: process for process in found.running}


@pytest.mark.parametrize(
    ("size", "lacks"),
    [
        pytest.param(24, (), id="v3"),
        pytest.param(32, (), id="535.43: v3 with a longer struct"),
        pytest.param(24, ("_v3",), id="v2"),
        pytest.param(16, ("_v3", "_v2"), id="v1"),
    ],
)
@pytest.mark.parametrize("count", [1, 2, 40])
def test_processes_are_read_whatever_struct_the_driver_fills(
    tmp_path: Path, size: int, lacks: tuple[str, ...], count: int
) -> None:
    listed = [FakeProcess(4000 + number, 100 + number) for number in range(count)]
    nvml = FakeNvml(FakeCard("GPU-1", processes=listed))
    nvml.nvmlLib.size, nvml.nvmlLib.lacks = size, lacks
    found = processes(devices(nvml, tmp_path))
    assert {pid: process.memory_bytes for pid, process in found.items()} == {
        process.pid: (process.mib or 0) * MIB for process in listed
    }


def test_a_struct_of_unknown_size_tells_nothing(tmp_path: Path) -> None:
    nvml = FakeNvml(FakeCard("GPU-1", processes=[FakeProcess(1, 1), FakeProcess(2, 2)]))
    nvml.nvmlLib.size = 40
    assert devices(nvml, tmp_path).read().usage["GPU-1"].processes is None


@pytest.mark.parametrize("mib", [None, 15361])
def test_memory_that_a_card_does_not_have_is_unknown(tmp_path: Path, mib: int | None) -> None:
    nvml = FakeNvml(FakeCard("GPU-1", mib=15360, processes=[FakeProcess(7, mib), FakeProcess(0, 5)]))
    assert processes(devices(nvml, tmp_path)) == {7: GpuProcess(7, None, 0.0, float("inf"))}


def test_a_process_that_computes_and_draws_counts_once(tmp_path: Path) -> None:
    listed = [FakeProcess(7, 10), FakeProcess(7, 3, "Graphics"), FakeProcess(8, 2, "Graphics")]
    found = processes(devices(FakeNvml(FakeCard("GPU-1", processes=listed)), tmp_path))
    assert {pid: process.memory_bytes for pid, process in found.items()} == {7: 10 * MIB, 8: 2 * MIB}


def test_samples_are_averaged_since_the_reading_before(tmp_path: Path) -> None:
    now = time.time_ns() // 1000
    busy = FakeProcess(7, 10, samples=[(now - 2000, 20), (now - 1000, 60), (now - 900, 4_294_967_295)])
    node = devices(FakeNvml(FakeCard("GPU-1", processes=[busy, FakeProcess(8, 10)])), tmp_path)
    first = processes(node)
    assert (first[7].cores, first[7].sampled_since) == (0.4, (now - 2000) / 1e6)
    assert first[8].cores == 0.0
    assert processes(node)[7].cores == 0.0
    busy.samples.append((now, 30))
    assert processes(node)[7].cores == 0.3


def test_a_card_is_not_asked_for_its_processes_at_every_reading(tmp_path: Path) -> None:
    card = FakeCard("GPU-1", processes=[FakeProcess(7, 10)])
    nvml = FakeNvml(card)
    node = devices(nvml, tmp_path, every=3600)
    first = node.read().usage["GPU-1"].processes
    card.processes = []
    assert node.read().usage["GPU-1"].processes == first
    assert nvml.calls.count("nvmlDeviceGetComputeRunningProcesses GPU-1") == 2, "one for the size, one for the list"


def test_samples_are_read_again_after_the_clock_was_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    process = FakeProcess(7, 10, samples=[(now // 1000, 50)])
    node = devices(FakeNvml(FakeCard("GPU-1", processes=[process])), tmp_path)
    assert processes(node)[7].cores == 0.5
    earlier = now - 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: earlier)
    process.samples = [(earlier // 1000 - 10, 70)]
    assert processes(node)[7].cores == 0.7


def test_a_card_without_samples_tells_memory_only(tmp_path: Path) -> None:
    nvml = FakeNvml(FakeCard("GPU-1", processes=[FakeProcess(7, 10)], has_samples=False))
    assert processes(devices(nvml, tmp_path)) == {7: GpuProcess(7, 10 * MIB)}


def test_mps_clients_are_told_from_their_server(tmp_path: Path) -> None:
    listed = [FakeProcess(5, 30), FakeProcess(7, 10), FakeProcess(7, 10, "MPSCompute")]
    found = processes(devices(FakeNvml(FakeCard("GPU-1", processes=listed)), tmp_path))
    assert {pid: process.is_mps_client for pid, process in found.items()} == {5: False, 7: True}


def test_a_mig_instance_has_its_processes_and_its_card_none(tmp_path: Path) -> None:
    instance = FakeInstance("MIG-1", gpu_instance=1, processes=[FakeProcess(7, 10)])
    card = FakeCard("GPU-1", mig=True, instances=[instance], processes=[FakeProcess(7, 10)])
    usage = devices(FakeNvml(card), tmp_path).read().usage
    assert usage["GPU-1"].processes is None
    assert usage["MIG-1"].processes is not None
    assert usage["MIG-1"].processes.running == (GpuProcess(7, 10 * MIB),)


def test_a_driver_that_lists_no_processes(tmp_path: Path) -> None:
    nvml = FakeNvml(FakeCard("GPU-1", processes=None), FakeCard("GPU-2", processes=[]))
    assert devices(nvml, tmp_path).read().usage["GPU-1"].processes is None
    nvml.nvmlLib.lacks = ("_v3", "_v2", "")
    assert devices(nvml, tmp_path).read().usage["GPU-2"].processes is None
    nvml.nvmlLib.lacks = ()
    assert processes(devices(nvml, tmp_path), "GPU-2") == {}


def test_what_a_card_counts_and_how_fast_it_runs(tmp_path: Path) -> None:
    counts = {
        pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: 2500,
        pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL: 3,
        pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL: 1,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: 2,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: 4,
        pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL: 5,
    }
    nvml = FakeNvml(FakeCard("GPU-1", counts=counts, mhz=(1410, 1215), nvlinks=[SWITCH, ""]), FakeCard("GPU-2"))
    usage = devices(nvml, tmp_path).read().usage
    assert usage["GPU-1"] == Usage(
        memory_bytes=0,
        joules=2.5,
        core_hertz=1_410_000_000,
        memory_hertz=1_215_000_000,
        corrected_errors=3,
        uncorrected_errors=1,
        nvlinks=1,
        nvlink_sent_bytes=2048,
        nvlink_received_bytes=4096,
        nvlink_errors=5,
    )
    assert usage["GPU-2"] == Usage(memory_bytes=0)


@pytest.mark.parametrize(
    ("module", "second", "is_told"),
    [
        pytest.param("NVIDIA UNIX Open Kernel Module for x86_64", "", False, id="open modules, own PID namespace"),
        pytest.param("NVIDIA UNIX Open Kernel Module for x86_64", "kthreadd", True, id="open modules, hostPID"),
        pytest.param("NVIDIA UNIX x86_64 Kernel Module", "", True, id="proprietary modules, own PID namespace"),
    ],
)
def test_an_empty_list_of_a_driver_that_hides_other_containers_tells_nothing(
    tmp_path: Path, module: str, second: str, is_told: bool
) -> None:
    for name, text in (("driver/nvidia/version", f"NVRM version: {module}  580.65\nGCC"), ("2/comm", f"{second}\n")):
        (tmp_path / "proc" / name).parent.mkdir(parents=True)
        (tmp_path / "proc" / name).write_text(text)
    card = FakeCard("GPU-1", processes=[])
    node = devices(FakeNvml(card), tmp_path)
    assert (node.read().usage["GPU-1"].processes is not None) == is_told
    card.processes = [FakeProcess(7, 10)]
    assert processes(node).keys() == {7}
