"""The fake NVML library as unmodified nvidia-ml-py and the agent see it, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import nvml
from tests.rig.nvml import FakeNvml, Gpu, GpuProcess, MigInstance

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


_AGENT = """
import sys
from pathlib import Path
import structlog
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.agent.nvidia.threads import at_most
from aliquot.errors import NoDriver

agent = NvidiaDevices(wait=at_most(seconds=3), proc=Path("/nowhere"), processes_every=0)

def read():
    try:
        machine = agent.read()
    except NoDriver as error:
        return str(error)
    gpus = [[gpu.uuid, gpu.index, gpu.healthy] for gpu in machine.gpus]
    return [gpus, machine.driver, sorted(map(list, machine.faults.items()))]

def links():
    return [[gpu.uuid, [[link.uuid, link.score] for link in gpu.links]] for gpu in agent.read().gpus]

def xids(seconds):
    return [[event.uuid, event.code] for event in agent.wait_for_events(seconds)]

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
"""


class Observer:
    """A Python process that answers expressions over pynvml (named `n`) while the file changes."""

    def __init__(self, steered: FakeNvml, names: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", names + _ASKED],
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


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml.build(tmp_path_factory.mktemp("library"))


@pytest.fixture
def steered(library: Path, tmp_path: Path) -> FakeNvml:
    (tmp_path / library.name).symlink_to(library)
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
        (f"n.nvmlDeviceGetPciInfo({gpu(1)}).busId", "0000FA4E:02:00.0"),
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


# -- the agent


@pytest.fixture
def agent(steered: FakeNvml) -> Iterator[Observer]:
    process = Observer(steered, _AGENT)
    yield process
    process.end()


def healthy(*faults: str, driver: str = "550.90.07") -> list[Any]:
    """What the agent reads if only these cards have a fault."""
    uuids = ("GPU-a", "GPU-b")
    return [[[uuid, place, uuid not in faults] for place, uuid in enumerate(uuids)], driver]


def test_the_agent_reads_every_field_of_a_card(agent: Observer) -> None:
    assert agent.ask("read()") == [*healthy(), []]
    first = "(lambda gpu: [gpu.uuid, gpu.minor, gpu.model, gpu.mib, gpu.numa, gpu.parent])(agent.read().gpus[0])"
    assert agent.ask(first) == ["GPU-a", 3, "Tesla T4", 16276, 0, ""]


def test_the_agent_reads_how_busy_a_card_is(steered: FakeNvml, agent: Observer) -> None:
    usage = "[[u.cores, u.memory_bytes, u.celsius, u.watts] for u in agent.read().usage.values()]"
    steered.change(0, util=73, used_mib=100, celsius=61, watts=250)
    steered.change(1, util=-1, celsius=-1, watts=-1)
    assert agent.ask(usage) == [[0.73, 100 * MIB, 61, 250], [None, 0, None, None]]


@pytest.mark.parametrize("process_bytes", [24, 32], ids=["usual", "as 535.43 writes it"])
def test_the_agent_reads_the_processes_of_a_card(steered: FakeNvml, agent: Observer, process_bytes: int) -> None:
    steered.start_driver(process_bytes=process_bytes)
    listed = [GpuProcess(0, 4711, 500, 30), GpuProcess(1, 4712, 1, 90), GpuProcess(0, 4713, 24, 0, mps=1)]
    steered.replace_processes(listed)
    running = (
        "[[p.pid, p.memory_bytes, p.cores, p.is_mps_client]"
        " for u in agent.read().usage.values() for p in u.processes.running]"
    )
    assert agent.ask(running) == [
        [4711, 500 * MIB, 0.3, False],
        [4713, 24 * MIB, 0.0, True],
        [4712, MIB, 0.9, False],
    ]
    steered.change(0, samples=0)
    assert [cores for _, _, cores, _ in agent.ask(running)] == [None, None, 0.9]


def test_the_agent_reads_what_a_card_counts_and_how_fast_it_runs(steered: FakeNvml, agent: Observer) -> None:
    steered.change(0, joules=1234, ecc_errors=2, core_mhz=1410, memory_mhz=1215)
    counts = "[[u.joules, u.uncorrected_errors, u.core_hertz, u.memory_hertz] for u in agent.read().usage.values()]"
    assert agent.ask(counts) == [[1234, 2, 1_410_000_000, 1_215_000_000], [None, None, None, None]]


def test_the_agent_reads_how_cards_are_connected(steered: FakeNvml, agent: Observer) -> None:
    assert agent.ask("links()") == [["GPU-a", [["GPU-b", 10]]], ["GPU-b", [["GPU-a", 10]]]]
    steered.change(0, nvlinks="GPU-b,down,GPU-b")
    steered.change(1, nvlinks="GPU-a,GPU-a,down")
    assert agent.ask("links()") == [["GPU-a", [["GPU-b", 210]]], ["GPU-b", [["GPU-a", 210]]]]
    steered.change(0, nvlinks="switch,switch,switch")
    steered.change(1, nvlinks="switch,down,switch")
    assert agent.ask("links()") == [["GPU-a", [["GPU-b", 210]]], ["GPU-b", [["GPU-a", 210]]]]


def test_cards_on_one_pcie_switch_are_close(steered: FakeNvml, agent: Observer) -> None:
    steered.replace_gpus([Gpu("GPU-a", 0, pcie_switch=1), Gpu("GPU-b", 1, pcie_switch=1), Gpu("GPU-c", 2)])
    assert agent.ask("links()")[2:] == [["GPU-c", [["GPU-a", 20], ["GPU-b", 20]]]]
    assert agent.ask("links()")[0] == ["GPU-a", [["GPU-b", 50], ["GPU-c", 20]]]


def test_the_agent_reads_mig_instances(steered: FakeNvml, agent: Observer) -> None:
    steered.change(1, mig=1, mib=40960)
    assert agent.ask("read()")[2] == [["GPU-b", "MIG is enabled and it has no MIG instance"]]
    steered.replace_instances([MigInstance(1, "MIG-1", 9), MigInstance(1, "MIG-2", 13, mib=9856, profile="1g.10gb+me")])
    told = "[[gpu.uuid, gpu.index, gpu.mib, gpu.parent, gpu.profile] for gpu in agent.read().gpus[1:]]"
    assert agent.ask(told) == [
        ["GPU-b", 1, 40960, "", ""],
        ["MIG-1", 2090, 4864, "GPU-b", "1g.5gb"],
        ["MIG-2", 2130, 9856, "GPU-b", "1g.10gb+me"],
    ]


def test_the_agent_tells_why_a_card_is_unhealthy(steered: FakeNvml, agent: Observer) -> None:
    steered.change(0, rows_failed=1, ecc_errors=3)
    steered.change(1, rows_pending=1, ecc_errors=3, celsius=90, shutdown_celsius=96)
    broken = "a broken row of its memory could not be replaced; 3 uncorrected ECC errors since the driver was loaded"
    assert agent.ask("read()") == [*healthy("GPU-a"), [["GPU-a", broken]]]
    steered.change(0, rows_failed=0)
    steered.change(1, celsius=97)
    assert agent.ask("read()") == [*healthy("GPU-b"), [["GPU-b", "it has 97 degrees Celsius and shuts down at 96"]]]
    steered.change(1, celsius=60)
    assert agent.ask("read()") == [*healthy(), []]


def test_the_agent_reads_the_retired_pages_of_a_card_that_remaps_no_rows(steered: FakeNvml, agent: Observer) -> None:
    steered.change(0, pages=60, pages_pending=0)
    steered.change(1, pages=1, pages_pending=1, ecc_errors=1)
    many = "60 pages of its memory are broken, and NVIDIA replaces cards from 60 on"
    in_use = "a broken page of its memory is in use until the next reset; 1 uncorrected ECC errors so far"
    assert agent.ask("read()") == [*healthy("GPU-a", "GPU-b"), [["GPU-a", many], ["GPU-b", in_use]]]
    steered.change(0, pages=2)
    steered.change(1, pages_pending=0, ecc_errors=0)
    assert agent.ask("read()") == [*healthy(), []]


def test_the_agent_reads_what_the_driver_asks_for(steered: FakeNvml, agent: Observer) -> None:
    steered.change(0, recovery=1)
    steered.change(1, recovery=0)
    assert agent.ask("read()") == [*healthy("GPU-a"), [["GPU-a", "the driver asks to reset it"]]]
    steered.change(0, recovery=0)
    assert agent.ask("read()") == [*healthy(), []]


def test_a_lost_card_returns_to_the_agent(steered: FakeNvml, agent: Observer) -> None:
    agent.ask("read()")
    steered.change(1, state="lost")
    assert agent.ask("read()") == [*healthy("GPU-b"), [["GPU-b", "GPU is lost"]]]
    steered.change(1, state="ok")
    assert agent.ask("read()") == [*healthy(), []]


def test_a_card_that_is_plugged_in_is_found(steered: FakeNvml, agent: Observer) -> None:
    agent.ask("read()")
    steered.replace_gpus([*steered.gpus, Gpu("GPU-c", minor=7)])
    assert [uuid for uuid, *_ in agent.ask("read()")[0]] == ["GPU-a", "GPU-b", "GPU-c"]


def test_a_hanging_card_stops_no_other_and_not_the_end_of_the_process(steered: FakeNvml, agent: Observer) -> None:
    agent.ask("read()")
    steered.change(0, state="hang")
    assert agent.ask("read()") == [*healthy("GPU-a"), [["GPU-a", "it does not answer"]]]
    assert agent.ask("read()") == [*healthy("GPU-a"), [["GPU-a", "it does not answer"]]]
    agent.end()


def test_the_agent_goes_on_after_a_restart_of_the_driver(steered: FakeNvml, agent: Observer) -> None:
    agent.ask("read()")
    assert agent.ask("xids(0)") == []
    steered.stop_driver()
    assert {why.split(";")[0] for _, why in agent.ask("read()")[2]} == {"NVML does not work: Driver Not Loaded"}
    assert agent.ask("xids(0)") == []
    steered.start_driver("580.65.06")
    assert agent.ask("read()") == [*healthy(driver="580.65.06"), []]
    assert agent.ask("xids(0)") == []
    steered.report_xid(1, code=79)
    assert agent.ask("xids(30)") == [["GPU-b", 79]]


def test_a_restart_that_nobody_saw_is_noticed(steered: FakeNvml, agent: Observer) -> None:
    agent.ask("read()")
    steered.start_driver("580.65.06")
    assert agent.ask("read()") == [*healthy(driver="580.65.06"), []]


def test_the_agent_begins_when_the_driver_appears(steered: FakeNvml, agent: Observer) -> None:
    steered.stop_driver()
    assert agent.ask("read()").startswith("NVML does not work: Driver Not Loaded; is the NVIDIA driver installed")
    steered.start_driver()
    assert agent.ask("read()") == [*healthy(), []]


def test_the_agent_hears_of_xids_of_cards_and_instances(steered: FakeNvml, agent: Observer) -> None:
    steered.change(0, mig=1, events=0)
    steered.change(1, mig=1)
    steered.replace_instances([MigInstance(1, "MIG-1", 9)])
    agent.ask("read()")
    assert agent.ask("xids(0)") == []
    agent.begin("xids(30)")
    steered.report_xid(1, code=48)
    assert agent.answer() == [["GPU-b", 48]]
    steered.report_xid(1, code=94, gi=9, ci=0)
    assert agent.ask("xids(30)") == [["MIG-1", 94]]
    steered.report_xid(1, code=79)
    steered.change(1, state="lost")
    assert agent.ask("xids(30)") == [["GPU-b", 79]]


_CARDS = """
import sys
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.agent.nvidia.driver_library import DriverLibrary
library = DriverLibrary(*sys.argv[1:])
print(library.load())
print([card.uuid for card in NvidiaDevices(library=library).read().gpus])
"""


def test_nvidia_ml_py_uses_the_library_below_the_root(tmp_path: Path) -> None:
    """A real library in a process of its own, which has no other way to find it."""
    folder = tmp_path / "run/nvidia/driver" / "usr/lib64"
    folder.mkdir(parents=True)
    library = nvml.build(folder)
    steered = FakeNvml(tmp_path, [Gpu("GPU-a", minor=0)])
    command = [sys.executable, "-c", _CARDS, "/run/nvidia/driver", str(tmp_path)]
    environment = os.environ | {"FAKE_NVML_FILE": str(steered.file)}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert (told[0], told[-1]) == (str(library), "['GPU-a']"), "between them is the log"
