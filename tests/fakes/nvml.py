# ruff: noqa: N802 (the functions have NVIDIA's names)
"""NVIDIA's library as the agent calls it: those functions of pynvml, over cards that a test describes and changes."""

import ctypes
import re
import struct
import threading
import time
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import pynvml

MIB = 2**20
NO_INSTANCE = 0xFFFFFFFF
_OTHER_HANDLES = 1000
"""How far apart the two handles of a card are."""
SWITCH = "a switch"

_Number = TypeVar("_Number", int, float)


@dataclass
class FakeProcess:
    """A process on a card. `samples` are those that the card has taken: microseconds since the epoch, and percent.
    `percent` is what each question for samples is answered with, as one of now."""

    pid: int
    mib: int | None = None
    kind: str = "Compute"
    samples: list[tuple[int, int]] = field(default_factory=list)
    percent: int | None = None

    def sampled(self) -> list[tuple[int, int]]:
        return self.samples if self.percent is None else [*self.samples, (time.time_ns() // 1000, self.percent)]


@dataclass
class FakeInstance:
    """A MIG instance; `slices` are those of its compute instance and its GPU instance."""

    uuid: str
    gpu_instance: int
    mib: int = 4864
    compute_instance: int = 0
    used_mib: int = 0
    name: str = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    slices: tuple[int, int] = (1, 1)
    processes: list[FakeProcess] = field(default_factory=list)


@dataclass
class FakeCard:
    """A card. What it does not know, it does not support."""

    uuid: str
    minor: int = 0
    model: str = "Tesla T4"
    mib: int = 15360
    bus: int = 0x3B
    brand: int | None = pynvml.NVML_BRAND_TESLA
    numa: int | None = None
    ancestors: dict[str, int] = field(default_factory=dict)
    """The level of the closest common ancestor, by the other card's uuid."""
    nvlinks: list[str] = field(default_factory=list)
    """What is at the far end of each link: the uuid of a card, SWITCH, or empty while the link is down."""
    mig: bool | None = None
    instances: list[FakeInstance | None] = field(default_factory=list)
    remapped_rows: tuple[int, int, int, int] | None = None
    recovery_action: int | None = None
    retired_pages: tuple[int, int] | None = None
    """After single-bit errors, and after double-bit errors."""
    has_pending_pages: bool | None = None
    uncorrected: int | None = None
    used_mib: int = 0
    util: int | None = None
    watts: float | None = None
    celsius: int | None = None
    shutdown_celsius: int | None = None
    mhz: tuple[int, int] | None = None
    """Of its cores, and of its memory."""
    counts: dict[int, int] = field(default_factory=dict)
    """What it counts, by the number of the field."""
    processes: list[FakeProcess] | None = None
    has_samples: bool = True
    has_events: bool = True
    error: int = pynvml.NVML_SUCCESS
    """What every call about the card answers, such as NVML_ERROR_GPU_IS_LOST."""
    garbled: bool = False
    """Whether its name is no text."""
    hangs: bool = False
    waiting: int = 0
    """The calls about it that hang."""


class FakeNvml:
    """The functions of pynvml, and the time limit of the threads that call them."""

    def __init__(self, *cards: FakeCard, driver: str = "550.90.07") -> None:
        self.cards = list(cards)
        self.driver = driver
        self.init_error = pynvml.NVML_SUCCESS
        self.errors: dict[str, int] = {}
        """What functions answer, such as NVML_ERROR_FUNCTION_NOT_FOUND where the driver is too old for them."""
        self.sessions = 0
        self.calls: list[str] = []
        """The calls about cards: function and uuid."""
        self.events: list[Any] = []
        self.event_error = pynvml.NVML_SUCCESS
        self.registered: dict[int, list[str]] = {}
        """The uuids of the cards in each event set."""
        self.freed: list[int] = []
        self.nvmlLib = FakeLibrary(self)
        self._is_initialised = False
        self._changed = threading.Condition()
        self._calls: list[Future[Any]] = []

    # -- what a test does

    def restart_driver(self, **changes: Any) -> None:
        """Every call fails until the library is initialised again."""
        self._is_initialised = False
        for name, value in changes.items():
            setattr(self, name, value)

    def release(self, card: FakeCard) -> None:
        """Let the calls about a hanging card return, and wait until they have."""
        with self._changed:
            card.hangs = False
            self._changed.notify_all()
        self.wait(())

    def report(
        self,
        card: FakeCard,
        code: int,
        instance: tuple[int, int] = (NO_INSTANCE, NO_INSTANCE),
        *,
        by_other_handle: bool = False,
    ) -> None:
        """Report an XID error, of a MIG instance if its numbers are given."""
        self.events.append(
            SimpleNamespace(
                device=self._handle(self.cards.index(card) + _OTHER_HANDLES * by_other_handle),
                eventData=code,
                gpuInstanceId=instance[0],
                computeInstanceId=instance[1],
            )
        )

    def wait(self, calls: Collection[Future[Any]]) -> None:
        """The time limit: it passes as soon as every call that has not returned hangs."""
        self._calls += calls
        for call in calls:
            call.add_done_callback(self._notify)
        with self._changed:
            assert self._changed.wait_for(self._is_settled, timeout=60)

    def _is_settled(self) -> bool:
        return sum(not call.done() for call in self._calls) == sum(card.waiting for card in self.cards if card.hangs)

    def _notify(self, _: Future[Any]) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- the library

    def nvmlInit(self) -> None:
        _check(self.init_error)
        self.sessions += 1
        self._is_initialised = True

    def nvmlShutdown(self) -> None:
        self._enter("nvmlShutdown")
        self._is_initialised = False

    def nvmlSystemGetDriverVersion(self) -> str:
        self._enter("nvmlSystemGetDriverVersion")
        return self.driver

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        self._enter("nvmlSystemGetCudaDriverVersion")
        return 12040

    def nvmlDeviceGetCount(self) -> int:
        self._enter("nvmlDeviceGetCount")
        return len(self.cards)

    # -- cards

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        handle = self._handle(index)
        self._card("nvmlDeviceGetHandleByIndex", handle)
        return handle

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return self.either("nvmlDeviceGetUUID", handle).uuid

    def nvmlDeviceGetName(self, handle: Any) -> str:
        found = self.either("nvmlDeviceGetName", handle)
        if isinstance(found, FakeCard) and found.garbled:
            return b"\xff".decode()
        return found.name if isinstance(found, FakeInstance) else found.model

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        found = self.either("nvmlDeviceGetMemoryInfo", handle)
        return SimpleNamespace(total=found.mib * MIB, used=found.used_mib * MIB)

    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        return self._card("nvmlDeviceGetMinorNumber", handle).minor

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:
        return _pci(self._card("nvmlDeviceGetPciInfo", handle))

    def nvmlDeviceGetBrand(self, handle: Any) -> int:
        return _supported(self._card("nvmlDeviceGetBrand", handle).brand)

    def nvmlDeviceGetNumaNodeId(self, handle: Any) -> int:
        return _supported(self._card("nvmlDeviceGetNumaNodeId", handle).numa)

    def nvmlDeviceGetRemappedRows(self, handle: Any) -> tuple[int, int, int, int]:
        rows = self._card("nvmlDeviceGetRemappedRows", handle).remapped_rows
        if rows is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return rows

    def nvmlDeviceGetFieldValues(self, handle: Any, fields: list[int | tuple[int, int]]) -> list[Any]:
        card = self._card("nvmlDeviceGetFieldValues", handle)
        known = {pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: card.recovery_action, **card.counts}
        numbers = [field[0] if isinstance(field, tuple) else field for field in fields]
        return [_field(known.get(number)) for number in numbers]

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int) -> int:
        mhz = self._card("nvmlDeviceGetClockInfo", handle).mhz
        if mhz is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return mhz[clock == pynvml.NVML_CLOCK_MEM]

    def nvmlDeviceGetRetiredPages(self, handle: Any, cause: int) -> list[int]:
        pages = self._card("nvmlDeviceGetRetiredPages", handle).retired_pages
        if pages is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return list(range(pages[cause]))

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: Any) -> int:
        return _supported(self._card("nvmlDeviceGetRetiredPagesPendingStatus", handle).has_pending_pages)

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> int:
        assert (kind, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return _supported(self._card("nvmlDeviceGetTotalEccErrors", handle).uncorrected)

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return SimpleNamespace(gpu=_supported(self._card("nvmlDeviceGetUtilizationRates", handle).util))

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return int(1000 * _supported(self._card("nvmlDeviceGetPowerUsage", handle).watts))

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return _supported(self._card("nvmlDeviceGetTemperature", handle).celsius)

    def nvmlDeviceGetTemperatureThreshold(self, handle: Any, threshold: int) -> int:
        assert threshold == pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
        return _supported(self._card("nvmlDeviceGetTemperatureThreshold", handle).shutdown_celsius)

    # -- processes

    def nvmlDeviceGetProcessUtilization(self, handle: Any, since: int) -> list[Any]:
        found = self.either("nvmlDeviceGetProcessUtilization", handle)
        if isinstance(found, FakeInstance) or not found.has_samples:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        samples = [
            SimpleNamespace(pid=process.pid, timeStamp=moment, smUtil=percent)
            for process in found.processes or ()
            for moment, percent in process.sampled()
            if moment > since
        ]
        _check(pynvml.NVML_SUCCESS if samples else pynvml.NVML_ERROR_NOT_FOUND)
        return samples

    # -- links

    def nvmlDeviceGetTopologyCommonAncestor(self, handle: Any, other: Any) -> int:
        card = self._card("nvmlDeviceGetTopologyCommonAncestor", handle)
        far = self._card("nvmlDeviceGetTopologyCommonAncestor", other)
        return _supported(card.ancestors.get(far.uuid, far.ancestors.get(card.uuid)))

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int:
        card = self._card("nvmlDeviceGetNvLinkState", handle)
        _check(pynvml.NVML_SUCCESS if link < len(card.nvlinks) else pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(bool(card.nvlinks[link]))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, link: int) -> int:
        far_end = self._card("nvmlDeviceGetNvLinkRemoteDeviceType", handle).nvlinks[link]
        kinds = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH, pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
        return int(kinds[far_end != SWITCH])

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> Any:
        far_end = self._card("nvmlDeviceGetNvLinkRemotePciInfo", handle).nvlinks[link]
        if far_end == SWITCH:
            return SimpleNamespace(busId="00000000:C1:00.0")
        return _pci(next(card for card in self.cards if card.uuid == far_end))

    # -- MIG

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        return [int(_supported(self._card("nvmlDeviceGetMigMode", handle).mig)), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        self._card("nvmlDeviceGetMaxMigDeviceCount", handle)
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:
        found = self._card("nvmlDeviceGetMigDeviceHandleByIndex", handle).instances
        if index >= len(found) or found[index] is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found[index]

    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int:
        return int(handle.gpu_instance)

    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> int:
        return int(handle.compute_instance)

    def nvmlDeviceGetAttributes(self, handle: Any) -> Any:
        compute, whole = handle.slices
        return SimpleNamespace(computeInstanceSliceCount=compute, gpuInstanceSliceCount=whole, memorySizeMB=handle.mib)

    # -- events

    def nvmlEventSetCreate(self) -> int:
        self._enter("nvmlEventSetCreate")
        self.registered[len(self.registered)] = []
        return len(self.registered) - 1

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any) -> int:
        card = self._card("nvmlDeviceGetSupportedEventTypes", handle)
        return int(pynvml.nvmlEventTypeXidCriticalError) if card.has_events else 0

    def nvmlDeviceRegisterEvents(self, handle: Any, types: int, event_set: int) -> None:
        card = self._card("nvmlDeviceRegisterEvents", handle)
        _check(pynvml.NVML_SUCCESS if card.has_events else pynvml.NVML_ERROR_NOT_SUPPORTED)
        assert types == pynvml.nvmlEventTypeXidCriticalError
        self.registered[event_set].append(card.uuid)

    def nvmlEventSetWait(self, event_set: int, _: int) -> Any:
        self._enter("nvmlEventSetWait")
        assert event_set not in self.freed
        if not self.events:
            _check(self.event_error or pynvml.NVML_ERROR_TIMEOUT)
        return self.events.pop(0)

    def nvmlEventSetFree(self, event_set: int) -> None:
        self.freed.append(event_set)

    # -- inside

    def _enter(self, function: str) -> None:
        _check(self.errors.get(function, pynvml.NVML_SUCCESS))
        if not self._is_initialised:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)

    def _card(self, function: str, handle: Any) -> FakeCard:
        self._enter(function)
        card = self.cards[((ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1) % _OTHER_HANDLES]
        self.calls.append(f"{function} {card.uuid}")
        with self._changed:
            if card.hangs:
                card.waiting += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: not card.hangs)
                card.waiting -= 1
        _check(card.error)
        return card

    def either(self, function: str, handle: Any) -> FakeCard | FakeInstance:
        return handle if isinstance(handle, FakeInstance) else self._card(function, handle)

    @staticmethod
    def _handle(index: int) -> Any:
        return ctypes.cast(ctypes.c_void_p(index + 1), pynvml.c_nvmlDevice_t)


class FakeLibrary:
    """The C library behind pynvml. It has those functions that list processes, and fills a struct of `size` bytes for
    each. `lacks` are the versions that it does not have."""

    def __init__(self, nvml: FakeNvml) -> None:
        self._nvml = nvml
        self.size = 24
        self.lacks: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        match = re.fullmatch(r"nvmlDeviceGet(Compute|Graphics|MPSCompute)RunningProcesses(_v2|_v3)?", name)
        if match is None or (match[2] or "") in self.lacks:
            raise AttributeError(name)
        return partial(self._running, match[1])

    def _running(self, kind: str, handle: Any, count: Any, into: Any) -> int:
        try:
            found = self._nvml.either(f"nvmlDeviceGet{kind}RunningProcesses", handle)
        except pynvml.NVMLError as error:
            return int(error.value)
        if found.processes is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        own = [process for process in found.processes if process.kind == kind]
        room, count._obj.value = count._obj.value, len(own)
        if room < len(own):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for place, process in enumerate(own):
            memory = 2**64 - 1 if process.mib is None else process.mib * MIB
            written = struct.pack("@IQIIQ", process.pid, memory, NO_INSTANCE, NO_INSTANCE, 0)
            written = written[: self.size].ljust(self.size, b"\0")
            ctypes.memmove(ctypes.addressof(into) + place * self.size, written, self.size)
        return int(pynvml.NVML_SUCCESS)


def _field(value: int | None) -> Any:
    if value is None:
        return SimpleNamespace(nvmlReturn=pynvml.NVML_ERROR_NOT_SUPPORTED, valueType=0, value=None)
    kind = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    numbers = SimpleNamespace(uiVal=value, ullVal=value)
    return SimpleNamespace(nvmlReturn=pynvml.NVML_SUCCESS, valueType=kind, value=numbers)


def _check(code: int) -> None:
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)


def _supported(value: _Number | None) -> _Number:
    if value is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return value


def _pci(card: FakeCard) -> Any:
    return SimpleNamespace(busId=f"00000000:{card.bus:02X}:00.0")
