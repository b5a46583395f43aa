"""What NVML says is wrong with a card now. What it reports once, as an event, is in `xid_events`."""

import pynvml

from aliquot.agent.nvidia.session import Handle, Nvml, if_known


def fault(nvml: Nvml, handle: Handle) -> str:
    """Why a card must not be used, empty if nothing is known against it.

    A row of memory that waits for its replacement is no fault: the driver keeps it out of use until the next reset.
    """
    return _broken_memory(nvml, handle) or _heat(nvml, handle)


def _broken_memory(nvml: Nvml, handle: Handle) -> str:
    *_, is_pending, has_failed = if_known((0, 0, 0, 0), nvml.nvmlDeviceGetRemappedRows, handle)
    if not has_failed:
        return ""
    uncorrected = if_known(
        0,
        nvml.nvmlDeviceGetTotalEccErrors,
        handle,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    )
    details = [f"{uncorrected} uncorrected ECC errors since the driver was loaded"] if uncorrected else []
    details += ["more rows wait for the next reset"] if is_pending else []
    return "; ".join(["a broken row of its memory could not be replaced", *details])


def _heat(nvml: Nvml, handle: Handle) -> str:
    celsius = if_known(None, nvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    shutdown = if_known(
        None, nvml.nvmlDeviceGetTemperatureThreshold, handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    )
    if not celsius or not shutdown or celsius < shutdown:
        return ""
    return f"it has {celsius} degrees Celsius and shuts down at {shutdown}"
