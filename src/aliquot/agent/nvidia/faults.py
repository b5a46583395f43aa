"""What NVML says is wrong with a card now. What it reports once, as an event, is in `xid_events`."""

from collections.abc import Sequence
from typing import Any

import pynvml

from aliquot.agent.nvidia.session import Handle, Nvml, if_known

_RECOVER_IMEX_DOMAIN, _RESET_BUS, _RESTART_SYSTEM = 5, 6, 7
"""Actions that older versions of nvidia-ml-py do not name."""
_HARMLESS = (pynvml.NVML_GPU_RECOVERY_ACTION_NONE, _RECOVER_IMEX_DOMAIN)
"""An IMEX domain spans machines. The card itself is good."""
_ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "reset it",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "restart the machine",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "end the programs that use it together with other cards",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "end the programs that use it and other cards, and to reset it",
    _RESET_BUS: "reset its PCIe bus",
    _RESTART_SYSTEM: "restart the machine",
}
_MOST_RETIRED_PAGES = 60
"""From so many on NVIDIA replaces a card; the driver has room for four more."""


def fault(nvml: Nvml, handle: Handle, celsius: float | None) -> str:
    """Why a card with this temperature must not be used, empty if nothing is known against it.

    A row of memory that waits for its replacement is no fault: the driver keeps it out of use until the next reset.
    """
    rows = if_known(None, nvml.nvmlDeviceGetRemappedRows, handle)
    memory = _broken_rows(nvml, handle, *rows) if rows is not None else _broken_pages(nvml, handle)
    return memory or _advice(nvml, handle) or _heat(nvml, handle, celsius)


def _advice(nvml: Nvml, handle: Handle) -> str:
    """What the driver itself wants to be done with a card after its errors. It also knows those parts of an error that
    an XID event does not tell."""
    asked = [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
    fields: Sequence[Any] = if_known((), nvml.nvmlDeviceGetFieldValues, handle, asked)
    for action in (field.value.uiVal for field in fields if field.nvmlReturn == pynvml.NVML_SUCCESS):
        if action not in _HARMLESS:
            unknown = f"do something that Aliquot does not know (action {action})"
            return f"the driver asks to {_ACTIONS.get(action, unknown)}"
    return ""


def _broken_rows(nvml: Nvml, handle: Handle, _: int, __: int, is_pending: int, has_failed: int) -> str:
    if not has_failed:
        return ""
    uncorrected = _uncorrected(nvml, handle)
    details = [f"{uncorrected} uncorrected ECC errors since the driver was loaded"] if uncorrected else []
    details += ["more rows wait for the next reset"] if is_pending else []
    return "; ".join(["a broken row of its memory could not be replaced", *details])


def _broken_pages(nvml: Nvml, handle: Handle) -> str:
    """Cards before Ampere retire pages of memory. A page that waits for it stays in use until the next reset, which
    matters only after an error that could not be corrected."""
    causes = (
        pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    )
    retired = sum(len(if_known([], nvml.nvmlDeviceGetRetiredPages, handle, cause)) for cause in causes)
    if retired >= _MOST_RETIRED_PAGES:
        return f"{retired} pages of its memory are broken, and NVIDIA replaces cards from {_MOST_RETIRED_PAGES} on"
    if not if_known(0, nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle):
        return ""
    if not (uncorrected := _uncorrected(nvml, handle)):
        return ""
    return f"a broken page of its memory is in use until the next reset; {uncorrected} uncorrected ECC errors so far"


def _uncorrected(nvml: Nvml, handle: Handle) -> int:
    """The ECC errors since the driver was loaded that could not be corrected."""
    return if_known(
        0,
        nvml.nvmlDeviceGetTotalEccErrors,
        handle,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    )


def _heat(nvml: Nvml, handle: Handle, celsius: float | None) -> str:
    shutdown = if_known(
        None, nvml.nvmlDeviceGetTemperatureThreshold, handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    )
    if not celsius or not shutdown or celsius < shutdown:
        return ""
    return f"it has {celsius} degrees Celsius and shuts down at {shutdown}"
