"""Static MIG instances of a card, and the device nodes that open them."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pynvml

from aliquot.agent.devices import Usage
from aliquot.agent.nvidia.processes import ProcessLists
from aliquot.agent.nvidia.session import Handle, Nvml, if_known
from aliquot.errors import Refused
from aliquot.model import Gpu

_MIB = 2**20
_PROFILE = re.compile(r"\bMIG (\d\S*)$")
_EIGHTHS = 8


@dataclass(frozen=True)
class Instance:
    """A MIG instance with the numbers of its GPU instance and its compute instance on the card."""

    gpu: Gpu
    gpu_instance: int
    compute_instance: int
    usage: Usage


def has_mig(nvml: Nvml, handle: Handle) -> bool:
    """Whether a card can be used only through MIG instances."""
    current, _ = if_known([pynvml.NVML_DEVICE_MIG_DISABLE, 0], nvml.nvmlDeviceGetMigMode, handle)
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def instances(nvml: Nvml, handle: Handle, card: Gpu, processes: ProcessLists) -> tuple[Instance, ...]:
    most = if_known(0, nvml.nvmlDeviceGetMaxMigDeviceCount, handle)
    found = (if_known(None, _instance, nvml, handle, card, place, processes) for place in range(most))
    return tuple(instance for instance in found if instance is not None)


def index(card: int, instance: Instance) -> int:
    """The index of an instance. It never meets a card's, and stays when other instances come and go: instance 9/0 of
    card 2 has 3090."""
    return (card + 1) * 1000 + instance.gpu_instance * 10 + instance.compute_instance


def _instance(nvml: Nvml, card_handle: Handle, card: Gpu, place: int, processes: ProcessLists) -> Instance:
    handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card_handle, place)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    gpu = replace(
        card,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        mib=memory.total // _MIB,
        parent=card.uuid,
        profile=_profile(nvml, handle, card),
    )
    numbers = nvml.nvmlDeviceGetGpuInstanceId(handle), nvml.nvmlDeviceGetComputeInstanceId(handle)
    running = processes.on(gpu.uuid, handle, memory.total)
    return Instance(gpu, *numbers, Usage(memory_bytes=memory.used, processes=running))


def _profile(nvml: Nvml, handle: Handle, card: Gpu) -> str:
    """The name of an instance ends with its profile. Where it does not, slices and memory tell it."""
    if named := _PROFILE.search(nvml.nvmlDeviceGetName(handle)):
        return named[1]
    has = nvml.nvmlDeviceGetAttributes(handle)
    eighths = -(-has.memorySizeMB * _EIGHTHS // card.mib)
    gib = round(eighths * -(-card.mib // 1024) / _EIGHTHS)
    compute, whole = has.computeInstanceSliceCount, has.gpuInstanceSliceCount
    return f"{whole}g.{gib}gb" if compute == whole else f"{compute}c.{whole}g.{gib}gb"


def capability_nodes(instance: Instance, proc: Path) -> tuple[str, ...]:
    """The device nodes below /dev that open an instance: that of its GPU instance and that of its compute instance.

    Raises Refused if the driver does not list them.
    """
    file = proc / "driver" / "nvidia-caps" / "mig-minors"
    gpu = f"gpu{instance.gpu.minor}/gi{instance.gpu_instance}"
    try:
        minors = _capability_minors(file.read_text())
        names = (f"{gpu}/access", f"{gpu}/ci{instance.compute_instance}/access")
        return tuple(f"nvidia-caps/nvidia-cap{minors[name]}" for name in names)
    except OSError as error:
        raise Refused(f"{file} cannot be read, so the MIG instance cannot be opened: {error.strerror}") from error
    except KeyError as error:
        raise Refused(f"{file} does not list {error}, so the MIG instance cannot be opened") from error


def _capability_minors(text: str) -> dict[str, str]:
    """Lines such as `gpu0/gi1/ci0/access 13`."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
