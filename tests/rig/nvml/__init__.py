"""The fake NVML library: compiling it, and steering it while programs use it.

The C file beside this one says what the steering file means.
"""

import dataclasses
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_SOURCE = Path(__file__).with_name("fake_nvml.c")
_SONAME = "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One simulated card; `used_mib` is what it uses besides the processes listed for it. -1 means that it does not
    know or support something."""

    uuid: str
    minor: int
    mib: int = 15360
    model: str = "Tesla T4"
    used_mib: int = 0
    util: int = 0
    numa: int = -1
    watts: int = 30
    celsius: int = 40
    state: Literal["ok", "lost", "hang"] = "ok"
    shutdown_celsius: int = -1
    rows_pending: int = -1
    rows_failed: int = -1
    pages: int = -1
    pages_pending: int = -1
    ecc_errors: int = -1
    recovery: int = -1
    """The driver's advice: NVML_GPU_RECOVERY_ACTION_…"""
    pcie_switch: int = -1
    nvlinks: str = ""
    """What is at the far end of each link, between commas: a uuid, `switch` or `down`."""
    mig: int = -1
    events: int = 1
    samples: int = 1
    joules: int = -1
    core_mhz: int = -1
    memory_mhz: int = -1


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A static MIG instance of the GPU of that index, with the numbers of its GPU and its compute instance."""

    gpu: int
    uuid: str
    gi: int
    ci: int = 0
    mib: int = 4864
    profile: str = "1g.5gb"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on the GPU of that index: how much of its cores, and whether as a client of MPS."""

    gpu: int
    pid: int
    mib: int
    percent: int = 0
    mps: int = 0


@dataclass(frozen=True, slots=True)
class _Xid:
    number: int
    gpu: int
    code: int
    gi: int
    ci: int


@dataclass(frozen=True, slots=True)
class _Driver:
    version: str = "550.90.07"
    boot: int = 1
    process_bytes: int = 24


def default_gpus() -> list[Gpu]:
    """Two cards of a small machine whose device nodes are numbered against NVML's order, as on some real ones."""
    return [Gpu(f"GPU-00000000-0000-4000-8000-{minor:012x}", minor) for minor in (1, 0)]


def build(folder: Path) -> Path:
    """Compile the library into `folder`."""
    library = folder / _SONAME
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", f"-Wl,-soname,{_SONAME}"]
    subprocess.run([*command, "-o", library, _SOURCE, "-lpthread"], check=True)
    return library


class FakeNvml:
    """The steering file of one machine: each change is written at once, in one piece."""

    def __init__(self, folder: Path, gpus: Iterable[Gpu]) -> None:
        self._folder = folder
        self.file = folder / "gpus.txt"
        self._driver = _Driver()
        self._gpus = list(gpus)
        self._instances: list[MigInstance] = []
        self._processes: list[GpuProcess] = []
        self._xids: list[_Xid] = []
        self._write()

    @property
    def gpus(self) -> list[Gpu]:
        return list(self._gpus)

    @property
    def processes(self) -> list[GpuProcess]:
        return list(self._processes)

    def environment(self) -> dict[str, str]:
        """What a process needs to find this library and this file; build the library into the same folder."""
        return {"LD_LIBRARY_PATH": str(self._folder), "FAKE_NVML_FILE": str(self.file)}

    def change(self, index: int, **changes: Any) -> None:
        """Change fields of one GPU, for example `change(0, state="lost")`."""
        self._gpus[index] = dataclasses.replace(self._gpus[index], **changes)
        self._write()

    def replace_gpus(self, gpus: Iterable[Gpu]) -> None:
        self._gpus = list(gpus)
        self._write()

    def replace_instances(self, instances: Iterable[MigInstance]) -> None:
        self._instances = list(instances)
        self._write()

    def stop_driver(self) -> None:
        """Unload the driver, as far as programs can tell."""
        self.file.unlink()

    def start_driver(self, version: str = "550.90.07", process_bytes: int = 24) -> None:
        """Load the driver, again or of another version. Programs that use the library must initialise it again."""
        self._driver = _Driver(version, self._driver.boot + 1, process_bytes)
        self._write()

    def replace_processes(self, processes: Iterable[GpuProcess]) -> None:
        self._processes = list(processes)
        self._write()

    def report_xid(self, gpu: int, code: int, gi: int = -1, ci: int = -1) -> None:
        """Let every event set that waits for this GPU report an XID error, of a MIG instance if it has numbers."""
        self._xids.append(_Xid(len(self._xids) + 1, gpu, code, gi, ci))
        self._write()

    def _write(self) -> None:
        lines = [
            _line("driver", self._driver),
            *(_line("gpu", gpu) for gpu in self._gpus),
            *(_line("instance", instance) for instance in self._instances),
            *(_line("process", process) for process in self._processes),
            *(_line("xid", xid) for xid in self._xids),
        ]
        part = self.file.with_suffix(".part")
        part.write_text("".join(lines))
        part.replace(self.file)


def _line(word: str, thing: _Driver | Gpu | MigInstance | GpuProcess | _Xid) -> str:
    pairs = dataclasses.asdict(thing).items()
    return " ".join([word, *(f"{key}={_quoted(value)}" for key, value in pairs if value != "")]) + "\n"


def _quoted(value: object) -> str:
    text = str(value)
    if '"' in text or "\n" in text:
        raise ValueError(f"neither a double quote nor a line break can stand in {text!r}")
    return f'"{text}"' if " " in text else text
