"""The processes on a card, with their memory and their part of its cores.

nvidia-ml-py trusts that a function fills the struct of its name. Some drivers do not: those from 535.43 to 535.86 fill
a longer one, and every process but the first is then read from the wrong place. So this module calls the library
itself, with room for the longest struct, and looks how much was written.
"""

import ctypes
import math
import struct
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml

from aliquot.agent.devices import GpuProcess, Processes
from aliquot.agent.nvidia.session import CARD_GONE, Handle, Nvml

_FUNCTION = "nvmlDeviceGet{}RunningProcesses{}"
_VERSIONS = ("_v3", "_v2", "")
"""Of a function, the newest first. An older driver has only older ones."""
_SIZES = (16, 24, 32)
"""Bytes of a process's struct: PID and memory, with the numbers of its MIG instance, and with protected memory."""
_HEAD = struct.Struct("@IQ")
_UNWRITTEN = b"\xa5"
"""No struct ends with such a byte: its last field is a number of bytes, or a number of an instance or all ones."""
_MOST = 16384
"""Processes on a card. A driver that claims more answers nonsense."""
_MPS_SERVER = "nvidia-cuda-mps"
"""The first 15 characters of its name: the kernel keeps no more."""
_SPARE = 8
"""Room for processes that start between two calls."""
_HUNDRED = 100


_OPEN_MODULES = "Open Kernel Module"
"""Of all kernel modules only these tell a caller the PIDs of its own namespace, and hide the processes outside it."""
_HOST = "kthreadd"
"""Process 2 of the host, and of no other PID namespace."""


class ProcessLists:
    """Asks each card every so many seconds, and remembers what it answered and which samples it has shown. `proc` shows
    the processes of this process's namespace."""

    def __init__(self, nvml: Nvml, proc: Path, every: float) -> None:
        self._nvml = nvml
        self._proc = proc
        self._every = every
        self._answers: dict[str, tuple[float, Processes | None]] = {}
        self._newest: dict[str, int] = {}
        """When the newest sample of a card was taken, by uuid, in microseconds since the epoch."""

    def on(self, uuid: str, handle: Handle, card_bytes: int) -> Processes | None:
        """The processes on a card or a MIG instance; None if the driver does not list them, or not to us. Raises
        NVMLError if the card is gone."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        before, known = self._answers.get(uuid, (-math.inf, None))
        if now - before >= self._every:
            known = self._ask(uuid, handle, card_bytes, now)
            self._answers[uuid] = now, known
        return known

    def _ask(self, uuid: str, handle: Handle, card_bytes: int, asked_at: float) -> Processes | None:
        computing = _running(self._nvml, "Compute", handle, card_bytes)
        if computing is None:
            return None
        drawing = _running(self._nvml, "Graphics", handle, card_bytes) or {}
        clients = _running(self._nvml, "MPSCompute", handle, card_bytes) or {}
        memory = {**drawing, **computing, **clients}
        if not memory and self._is_kept_in_the_dark():
            return None
        samples = self._samples(uuid, handle)
        return Processes(
            asked_at,
            tuple(
                GpuProcess(pid, used, *_average(samples, pid), is_mps_client=pid in clients)
                for pid, used in memory.items()
            ),
            _MPS_SERVER,
        )

    def _is_kept_in_the_dark(self) -> bool:
        """Whether the driver would not tell us about the processes of other containers."""
        module, second = (_first_line(self._proc / name) for name in ("driver/nvidia/version", "2/comm"))
        return _OPEN_MODULES in module and second != _HOST

    def _samples(self, uuid: str, handle: Handle) -> Mapping[int, list[tuple[int, int]]] | None:
        """What was sampled of each PID since the last time: microseconds and percent. None if the card does not sample,
        as MIG instances and many consumer cards do not."""
        newest = self._newest.get(uuid, 0)
        if newest > _microseconds():  # the clock was set back
            newest = 0
        try:
            found = self._nvml.nvmlDeviceGetProcessUtilization(handle, newest)
        except pynvml.NVMLError as error:
            if error.value in CARD_GONE:
                raise
            return {} if error.value == pynvml.NVML_ERROR_NOT_FOUND else None
        now = _microseconds()
        samples: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for sample in found:
            if newest < sample.timeStamp <= now and sample.smUtil <= _HUNDRED:
                samples[sample.pid].append((sample.timeStamp, sample.smUtil))
        self._newest[uuid] = max((moment for own in samples.values() for moment, _ in own), default=newest)
        return samples


def _microseconds() -> int:
    return time.time_ns() // 1000


def _first_line(path: Path) -> str:
    try:
        return path.read_text().partition("\n")[0]
    except OSError:
        return ""


def _average(samples: Mapping[int, list[tuple[int, int]]] | None, pid: int) -> tuple[float | None, float]:
    """A process's part of the cores, and the time of its oldest sample. Without any, it has computed nothing."""
    if samples is None:
        return None, 0.0
    own = samples.get(pid)
    if not own:
        return 0.0, math.inf
    average = sum(percent for _, percent in own) / len(own)
    return average / _HUNDRED, min(moment for moment, _ in own) / 1e6


def _running(nvml: Nvml, kind: str, handle: Handle, card_bytes: int) -> dict[int, int | None] | None:
    """The memory of each process of a kind, by PID; None if the driver does not list them."""
    named = (getattr(nvml.nvmlLib, _FUNCTION.format(kind, version), None) for version in _VERSIONS)
    function = next((found for found in named if found is not None), None)
    if function is None:
        return None
    count, room = ctypes.c_uint(0), 0
    code, written = function(handle, ctypes.byref(count), None), b""
    while code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE and room < count.value <= _MOST:
        room = count.value + _SPARE
        buffer = ctypes.create_string_buffer(_UNWRITTEN * (room * _SIZES[-1]), room * _SIZES[-1])
        count.value = room
        code, written = function(handle, ctypes.byref(count), buffer), buffer.raw.rstrip(_UNWRITTEN)
    if code in CARD_GONE:
        raise pynvml.NVMLError(code)
    return _read(written, count.value, card_bytes) if code == pynvml.NVML_SUCCESS else None


def _read(written: bytes, count: int, card_bytes: int) -> dict[int, int | None] | None:
    """Memory is unknown where it is more than the card has, which is nonsense or all ones. None if the structs have no
    size that we know."""
    size = next((size for size in _SIZES if len(written) <= count * size), None)
    if size is None:
        return None
    padded = written.ljust(count * size, b"\0")
    heads: list[tuple[Any, ...]] = [_HEAD.unpack_from(padded, place * size) for place in range(count)]
    return {pid: memory if memory <= card_bytes else None for pid, memory in heads if pid}
