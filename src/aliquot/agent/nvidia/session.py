"""NVIDIA's management library (NVML) as nvidia-ml-py offers it: its errors, and its life in this process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pynvml
import structlog

_log = structlog.get_logger()

Nvml = Any
"""The module pynvml, or a fake with those of its functions that are used here."""
Handle = Any
"""A card or a MIG instance, as NVML names it. Valid in one session."""

DRIVER_GONE = frozenset(
    (
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    )
)
"""The driver has stopped, restarted or changed since NVML was initialised."""
CARD_GONE = DRIVER_GONE | {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}
"""A card with one of these errors cannot be used. Other errors mean that a card or a driver cannot answer one call."""

_T = TypeVar("_T")


def if_known(default: _T, function: Callable[..., _T], *arguments: object) -> _T:
    """What a function answers, or `default` if this card or driver cannot tell, as older ones cannot."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in CARD_GONE:
            raise
        return default


class Session:
    """NVML, initialised while it works. Its methods may block and raise NVMLError."""

    def __init__(self, nvml: Nvml, proc: Path) -> None:
        self.nvml = nvml
        self.number = 0
        """Counts the sessions. Handles and event sets belong to one."""
        self._gpus = proc / "driver" / "nvidia" / "gpus"
        self._listed: frozenset[str] = frozenset()
        self._told = ""
        self._is_initialised = False
        self._is_usable = threading.Event()
        self._turn = threading.Lock()

    def open(self) -> None:
        """Initialise NVML if it is not, and again if the driver lists other cards than before: NVML may look for cards
        only then."""
        if not self._is_usable.is_set() or self._cards_of_driver() != self._listed:
            self._initialise()

    def distrust(self) -> None:
        """The next `open` initialises NVML again."""
        self._is_usable.clear()

    @contextmanager
    def kept(self, seconds: float) -> Iterator[bool]:
        """NVML stays initialised in this context. False if it is not initialised within `seconds`."""
        if not self._is_usable.wait(seconds):
            yield False
            return
        with self._turn:
            yield self._is_usable.is_set()

    def _initialise(self) -> None:
        self._is_usable.clear()
        with self._turn:
            self._listed = self._cards_of_driver()
            if self._is_initialised:
                self._is_initialised = False
                with suppress(pynvml.NVMLError):
                    self.nvml.nvmlShutdown()
            self.nvml.nvmlInit()
            self._is_initialised = True
            self.number += 1
            self._is_usable.set()

    def driver(self) -> str:
        """The version of the driver."""
        version = if_known("", self.nvml.nvmlSystemGetDriverVersion)
        if version != self._told:
            self._told = version
            cuda = if_known(0, self.nvml.nvmlSystemGetCudaDriverVersion)
            _log.info("the driver answers", driver=version, cuda=f"{cuda // 1000}.{cuda % 1000 // 10}")
        return version

    def _cards_of_driver(self) -> frozenset[str]:
        """Empty where the kernel does not show them, as in some containers."""
        try:
            return frozenset(entry.name for entry in self._gpus.iterdir())
        except OSError:
            return frozenset()
