"""The fake NVML library as unmodified nvidia-ml-py sees it, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import nvml
from tests.rig.nvml import FakeNvml, Gpu, GpuProcess

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024

_ASKED = """
import json, sys
import pynvml as n

def failing(call):
    try:
        call()
    except n.NVMLError as error:
        return type(error).__name__

def answer(question):
    value = eval(question)
    return value if isinstance(value, (int, str, list, type(None))) else str(value)

for line in sys.stdin:
    try:
        print(json.dumps(answer(line)), flush=True)
    except n.NVMLError as error:
        print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
"""


class Observer:
    """A Python process that answers expressions over pynvml (named `n`) while the file changes."""

    def __init__(self, steered: FakeNvml) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ASKED],
            env=os.environ | steered.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: str) -> Any:
        self.begin(question)
        return self.answer()

    def begin(self, question: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=10)


@pytest.fixture
def steered(tmp_path: Path) -> FakeNvml:
    nvml.build(tmp_path)
    cards = [Gpu("GPU-a", minor=3, mib=16276, numa=0), Gpu("GPU-b", minor=5, model="NVIDIA A100", numa=1)]
    return FakeNvml(tmp_path, cards)


@pytest.fixture
def observer(steered: FakeNvml) -> Iterator[Observer]:
    process = Observer(steered)
    assert process.ask("n.nvmlInit()") is None
    yield process
    process.end()


def gpu(index: int) -> str:
    return f"n.nvmlDeviceGetHandleByIndex({index})"


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("n.nvmlSystemGetDriverVersion()", "550.90.07"),
        ("n.nvmlSystemGetNVMLVersion()", "12.550.90.07"),
        ("n.nvmlSystemGetCudaDriverVersion()", 12040),
        ("n.nvmlDeviceGetCount()", 2),
        (f"n.nvmlDeviceGetUUID({gpu(0)})", "GPU-a"),
        (f"n.nvmlDeviceGetName({gpu(0)})", "Tesla T4"),
        (f"n.nvmlDeviceGetName({gpu(1)})", "NVIDIA A100"),
        (f"n.nvmlDeviceGetMinorNumber({gpu(1)})", 5),
        ("n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID('GPU-b'))", 1),
        (f"n.nvmlDeviceGetMemoryInfo({gpu(0)}).total", 16276 * MIB),
        (f"n.nvmlDeviceGetMemoryInfo({gpu(0)}, n.nvmlMemory_v2).free", 16276 * MIB),
        (f"n.nvmlDeviceGetPciInfo({gpu(1)}).busId", "00000000:02:00.0"),
        (f"n.nvmlDeviceGetNumaNodeId({gpu(1)})", 1),
        (f"list(n.nvmlDeviceGetMemoryAffinity({gpu(1)}, 1, 0))", [2]),
        (f"n.nvmlDeviceGetTopologyCommonAncestor({gpu(0)}, {gpu(1)}) == n.NVML_TOPOLOGY_SYSTEM", True),
        (f"n.nvmlDeviceGetPowerUsage({gpu(0)})", 30000),
        (f"n.nvmlDeviceGetTemperature({gpu(0)}, n.NVML_TEMPERATURE_GPU)", 40),
        (f"n.nvmlDeviceGetUtilizationRates({gpu(0)}).gpu", 0),
        (f"n.nvmlDeviceGetComputeRunningProcesses({gpu(0)})", []),
        (f"failing(lambda: n.nvmlDeviceGetMigMode({gpu(0)}))", "NVMLError_NotSupported"),
        ("failing(lambda: n.nvmlDeviceGetHandleByIndex(2))", "NVMLError_InvalidArgument"),
        ("failing(lambda: n.nvmlDeviceGetHandleByUUID('GPU-c'))", "NVMLError_NotFound"),
    ],
)
def test_a_quiet_machine_is_told(observer: Observer, question: str, expected: object) -> None:
    assert observer.ask(question) == expected


def test_changes_are_seen_by_a_running_process(steered: FakeNvml, observer: Observer) -> None:
    steered.change(0, util=73, used_mib=100)
    steered.replace_processes([GpuProcess(0, 4711, 500), GpuProcess(1, 4712, 1), GpuProcess(0, 4713, 24)])

    assert observer.ask(f"n.nvmlDeviceGetUtilizationRates({gpu(0)}).gpu") == 73
    assert observer.ask(f"n.nvmlDeviceGetMemoryInfo({gpu(0)}).used") == 624 * MIB
    running = f"[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses({gpu(0)})]"
    assert observer.ask(running) == [[4711, 500 * MIB], [4713, 24 * MIB]]


def test_a_lost_gpu_fails_every_call_and_can_come_back(steered: FakeNvml, observer: Observer) -> None:
    steered.change(1, state="lost")
    lost = {"error": "NVMLError_GpuIsLost", "text": "GPU is lost"}
    assert observer.ask(gpu(1)) == lost
    assert observer.ask("n.nvmlDeviceGetCount()") == 2

    steered.change(1, state="ok")
    assert observer.ask(f"n.nvmlDeviceGetUUID({gpu(1)})") == "GPU-b"


def test_a_hanging_gpu_answers_once_it_recovers(steered: FakeNvml, observer: Observer) -> None:
    steered.change(0, state="hang", celsius=99)
    observer.begin(f"n.nvmlDeviceGetTemperature({gpu(0)}, n.NVML_TEMPERATURE_GPU)")
    steered.change(0, state="ok", celsius=41)
    assert observer.answer() == 41


def test_each_xid_is_reported_once_to_those_who_registered(steered: FakeNvml, observer: Observer) -> None:
    steered.report_xid(0, code=31)  # before the event set: nobody hears of it
    observer.ask("globals().update(events=n.nvmlEventSetCreate())")
    observer.ask(f"n.nvmlDeviceRegisterEvents({gpu(0)}, n.nvmlEventTypeXidCriticalError, events)")
    wait = "(lambda e: [n.nvmlDeviceGetIndex(e.device), e.eventData])(n.nvmlEventSetWait(events, 5000))"

    observer.begin(wait)
    steered.report_xid(1, code=79)
    steered.report_xid(0, code=48)
    assert observer.answer() == [0, 48]
    assert observer.ask("failing(lambda: n.nvmlEventSetWait(events, 0))") == "NVMLError_Timeout"
    observer.ask("n.nvmlEventSetFree(events)")


def test_without_a_file_there_is_no_driver(steered: FakeNvml) -> None:
    steered.file.unlink()
    observer = Observer(steered)
    assert observer.ask("n.nvmlInit()") == {"error": "NVMLError_DriverNotLoaded", "text": "Driver Not Loaded"}
    observer.end()


def test_after_shutdown_nothing_is_answered(observer: Observer) -> None:
    observer.ask("n.nvmlShutdown()")
    assert observer.ask("n.nvmlDeviceGetCount()")["error"] == "NVMLError_Uninitialized"
