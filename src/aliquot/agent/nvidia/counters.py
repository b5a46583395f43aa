"""What a card counts since its driver was loaded, and how fast it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from aliquot.agent.nvidia.session import Handle, Nvml, if_known

_ALL_LINKS = 0xFFFFFFFF
_FIELDS = (
    pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
    (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
    (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
)
_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
}
_KIB, _MHZ = 1024, 1_000_000


@dataclass(frozen=True)
class Counted:
    joules: float | None = None
    corrected_errors: int | None = None
    uncorrected_errors: int | None = None
    nvlink_sent_bytes: int | None = None
    nvlink_received_bytes: int | None = None
    nvlink_errors: int | None = None


def read(nvml: Nvml, handle: Handle) -> Counted:
    """All of it in one call: each call to a busy driver waits for it."""
    fields: Sequence[Any] = if_known((), nvml.nvmlDeviceGetFieldValues, handle, list(_FIELDS))
    if not fields:
        return Counted()
    millijoules, corrected, uncorrected, sent_kib, received_kib, errors = map(_value, fields)
    return Counted(
        None if millijoules is None else millijoules / 1000,
        corrected,
        uncorrected,
        None if sent_kib is None else sent_kib * _KIB,
        None if received_kib is None else received_kib * _KIB,
        errors,
    )


def hertz(nvml: Nvml, handle: Handle, clock: int) -> int | None:
    mhz = if_known(None, nvml.nvmlDeviceGetClockInfo, handle, clock)
    return None if mhz is None else mhz * _MHZ


def _value(field: Any) -> int | None:
    """The value in the member of its union that its type names; None if the card does not know it."""
    if field.nvmlReturn != pynvml.NVML_SUCCESS or field.valueType not in _MEMBERS:
        return None
    value = getattr(field.value, _MEMBERS[field.valueType])
    return int(value) if value >= 0 else None
