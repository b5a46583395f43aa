"""NVIDIA's management library: nvidia-ml-py over the driver's libnvidia-ml.so.1."""

import pynvml

from aliquot.errors import NoDriver
from aliquot.model import Gpu


def cards() -> tuple[Gpu, ...]:
    """Every card by index. Raises NoDriver if the library or the driver is missing, or does not answer."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoDriver(
            f"NVML does not start: {error}. Is the NVIDIA driver installed, and its libnvidia-ml.so.1 visible here?"
        ) from error
    try:
        found = tuple(_card(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        raise NoDriver(f"NVML cannot list the cards: {error}") from error
    finally:
        pynvml.nvmlShutdown()
    if not found:
        raise NoDriver("the driver lists no card on this node")
    return found


def _card(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        index=index,
        minor=pynvml.nvmlDeviceGetMinorNumber(handle),
        model=_text(pynvml.nvmlDeviceGetName(handle)),
        mib=pynvml.nvmlDeviceGetMemoryInfo(handle).total // 2**20,
        numa=_numa(handle),
        healthy=_is_healthy(handle),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _numa(handle: object) -> int | None:
    """None if the driver or the machine does not report it."""
    try:
        node = int(pynvml.nvmlDeviceGetNumaNodeId(handle))
    except pynvml.NVMLError:
        return None
    return node if node >= 0 else None


def _is_healthy(handle: object) -> bool:
    """False if the card could not replace a broken row of its memory. Cards without that check count as healthy."""
    try:
        *_, failed = pynvml.nvmlDeviceGetRemappedRows(handle)
    except pynvml.NVMLError:
        return True
    return not failed
