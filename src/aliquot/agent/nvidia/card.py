"""One card, as NVML and the kernel know it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pynvml

from aliquot.agent.devices import Usage
from aliquot.agent.nvidia import counters, mig
from aliquot.agent.nvidia.faults import fault
from aliquot.agent.nvidia.processes import ProcessLists
from aliquot.agent.nvidia.session import Handle, Nvml, if_known
from aliquot.model import Gpu

_MIB = 2**20


_BRANDS = (
    *("UNKNOWN", "QUADRO", "TESLA", "NVS", "GRID", "GEFORCE", "TITAN"),
    *("NVIDIA_VAPPS", "NVIDIA_VPC", "NVIDIA_VCS", "NVIDIA_VWS", "NVIDIA_VGAMING"),
    *("QUADRO_RTX", "NVIDIA_RTX", "NVIDIA", "GEFORCE_RTX", "TITAN_RTX"),
)
"""By NVML's number, in the words of nvidia-gpu-scheduler, which knows no others."""


@dataclass(frozen=True)
class Card:
    """What a card says about itself. Its `gpu` has no links: they depend on the other cards."""

    gpu: Gpu
    handle: Handle = field(compare=False, repr=False)
    bus_id: str
    nvlinks: Mapping[str, int]
    """The active NVLinks to other cards, by their bus id."""
    switch_links: int
    """The active NVLinks to NVSwitches."""
    instances: tuple[mig.Instance, ...]
    fault: str
    usage: Usage

    @property
    def uuid(self) -> str:
        return self.gpu.uuid


def read_card(nvml: Nvml, place: int, sysfs: Path, processes: ProcessLists) -> Card:
    """The card at a place in NVML's order. Raises NVMLError if it does not answer."""
    handle = nvml.nvmlDeviceGetHandleByIndex(place)
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    bus_id = _bus_id(pci)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    gpu = Gpu(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        index=place,
        minor=nvml.nvmlDeviceGetMinorNumber(handle),
        model=nvml.nvmlDeviceGetName(handle),
        mib=memory.total // _MIB,
        numa=_numa(nvml, handle, bus_id, sysfs),
        brand=_brand(nvml, handle),
        bus_id=pci.busId,
    )
    nvlinks, switch_links, has_links = _nvlinks(nvml, handle)
    has_mig = mig.has_mig(nvml, handle)
    instances = mig.instances(nvml, handle, gpu, processes) if has_mig else ()
    links_up = sum(nvlinks.values()) + switch_links if has_links else None
    usage = _usage(nvml, handle, memory.used, links_up)
    if not has_mig:  # a card that is cut lists the processes of its instances a second time
        usage = replace(usage, processes=processes.on(gpu.uuid, handle, memory.total))
    is_useless = has_mig and not instances
    trouble = "MIG is enabled and it has no MIG instance" if is_useless else fault(nvml, handle, usage.celsius)
    return Card(gpu, handle, bus_id, nvlinks, switch_links, instances, trouble, usage)


def _usage(nvml: Nvml, handle: Handle, memory_bytes: int, nvlinks: int | None) -> Usage:
    rates = if_known(None, nvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = if_known(None, nvml.nvmlDeviceGetPowerUsage, handle)
    counted = counters.read(nvml, handle)
    return Usage(
        cores=None if rates is None else rates.gpu / 100,
        memory_bytes=memory_bytes,
        celsius=if_known(None, nvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        watts=None if milliwatts is None else milliwatts / 1000,
        joules=counted.joules,
        core_hertz=counters.hertz(nvml, handle, pynvml.NVML_CLOCK_SM),
        memory_hertz=counters.hertz(nvml, handle, pynvml.NVML_CLOCK_MEM),
        corrected_errors=counted.corrected_errors,
        uncorrected_errors=counted.uncorrected_errors,
        nvlinks=nvlinks,
        nvlink_sent_bytes=counted.nvlink_sent_bytes,
        nvlink_received_bytes=counted.nvlink_received_bytes,
        nvlink_errors=counted.nvlink_errors,
    )


def _brand(nvml: Nvml, handle: Handle) -> str:
    number = if_known(pynvml.NVML_BRAND_UNKNOWN, nvml.nvmlDeviceGetBrand, handle)
    return f"BRAND_{_BRANDS[number] if number < len(_BRANDS) else _BRANDS[0]}"


def _bus_id(pci: pynvml.nvmlPciInfo_t) -> str:
    """As the kernel writes it: 0000:3b:00.0, where NVML has eight digits for the domain."""
    domain, _, rest = pci.busId.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _numa(nvml: Nvml, handle: Handle, bus_id: str, sysfs: Path) -> int | None:
    """The NUMA node of the CPU that is closest to the card. The kernel knows it. NVML's number is the second choice:
    where a card's memory is a NUMA node of its own, NVML means that one."""
    try:
        node = int((sysfs / "bus" / "pci" / "devices" / bus_id / "numa_node").read_text())
    except (OSError, ValueError):
        node = if_known(-1, nvml.nvmlDeviceGetNumaNodeId, handle)
    return node if node >= 0 else None


def _nvlinks(nvml: Nvml, handle: Handle) -> tuple[Mapping[str, int], int, bool]:
    """The card's active links to cards, by bus id, the number of those to switches, and whether it has any links."""
    cards: Counter[str] = Counter()
    switches, has_links = 0, False
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = if_known(None, nvml.nvmlDeviceGetNvLinkState, handle, link)
        has_links = has_links or state is not None
        if state != pynvml.NVML_FEATURE_ENABLED:
            continue
        far_end = if_known(
            pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link
        )
        if far_end == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            switches += 1
        elif (pci := if_known(None, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)) is not None:
            cards[_bus_id(pci)] += 1
    return cards, switches, has_links
