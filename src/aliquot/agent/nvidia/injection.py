"""One way of injection per node: who adds the driver's files to a container, and what NVIDIA's runtime may add.

NVIDIA's container runtime stands between containerd and runc, for every container or for those of a RuntimeClass. It
reads variables of the finished container, in which ours have won over those of image and pod, and adds cards and driver
files by them. So a spec of ours always says what that runtime is to do:

- Our spec carries the driver's files: `void`, which makes it add nothing, whatever the other variables say.
- Our spec does not: exactly the container's cards, only what computing needs, and none of its extras.

Containers that ask for no GPU get no spec from us. What such a container gets is up to the configuration of NVIDIA's
runtime. If that is open, the agent says so in its log and in a condition of the Node.
"""

from collections.abc import Sequence

import structlog

from aliquot.agent.devices import ContainerEdits, OpenWay
from aliquot.agent.nvidia.container_runtime import (
    CAPABILITIES,
    NO_MORE_THAN_COMPUTING,
    OBEYED_BY_DEFAULT,
    NvidiaRuntime,
)
from aliquot.agent.nvidia.driver_files import DriverFiles
from aliquot.agent.nvidia.toolkit_spec import ToolkitSpecs
from aliquot.model import Gpu

_log = structlog.get_logger()


class Injection:
    """What a container gets besides the device nodes of its cards. It is read again with the cards, and what changes is
    logged. `is_complete` if the container runtime has named its handlers: without CDI it is often not asked."""

    def __init__(
        self,
        toolkit: ToolkitSpecs,
        driver: DriverFiles,
        runtime: NvidiaRuntime | None = None,
        *,
        is_complete: bool = False,
    ) -> None:
        self._toolkit = toolkit
        self._driver = driver
        self._runtime = runtime
        self._is_complete = is_complete
        self._said: str | None = None

    def read(self) -> None:
        """Look for the driver's files again. May take a moment."""
        self._toolkit.read()
        source = self._source()
        if source != self._said:
            self._said = source
            _say(source, self._runtime)

    @property
    def decisive_variables(self) -> frozenset[str]:
        """Those that NVIDIA's runtime obeys. If nobody knows whether it is there, those that it obeys by default."""
        if self._runtime is not None:
            return self._runtime.obeyed_variables
        return frozenset() if self._is_complete else OBEYED_BY_DEFAULT

    @property
    def limited_variables(self) -> frozenset[str]:
        """That by which NVIDIA's runtime adds more of the driver's files, if it obeys any."""
        return frozenset((CAPABILITIES,)) if self.decisive_variables else frozenset()

    @property
    def open_ways(self) -> Sequence[OpenWay] | None:
        """None if nobody knows whether NVIDIA's runtime is there."""
        if self._runtime is not None:
            return self._runtime.open_ways
        return () if self._is_complete else None

    def edits(self, gpus: Sequence[Gpu], *, with_cdi: bool = True) -> ContainerEdits:
        """The driver's files for a container with these cards, if they are found, and what NVIDIA's runtime reads. If
        nobody knows whether it is there, it reads which cards in the variables of the dialect."""
        files = (self._toolkit.edits(gpus) or self._driver.edits()) if with_cdi else self._without_cdi()
        if self._runtime is not None:
            variables = self._runtime.environment(gpus, files is not None)
        else:
            variables = {} if with_cdi or self._is_complete else NO_MORE_THAN_COMPUTING
        return ContainerEdits(variables) + (files or ContainerEdits())

    def _without_cdi(self) -> ContainerEdits | None:
        """kubelet keeps an answer to Allocate for the life of a pod, so files in it would not survive an update of the
        driver. NVIDIA's runtime finds them at every start."""
        return None if self._runtime and self._runtime.adds_files else self._driver.edits(with_hooks=False)

    def _source(self) -> str:
        """Where our specs take the driver's files from; empty if nowhere."""
        if self._toolkit.used:
            return str(self._toolkit.used[0])
        root = self._driver.used
        return f"driver root {root}" if root else ""


def _say(source: str, runtime: NvidiaRuntime | None) -> None:
    """Where the driver's files are for our own specs, whether NVIDIA's runtime adds its own, and what is open."""
    _log.info(
        "found the driver's files",
        source=source or "none",
        nvidia_runtime=str(runtime) if runtime else "not configured in the container runtime",
    )
    if not source and not (runtime and runtime.adds_files):
        _log.warning(
            "CUDA programs will not find the driver's libraries: there is neither a CDI spec of the NVIDIA container "
            "toolkit nor a driver root with libcuda",
            what="run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, or set --driver-root and --host-root",
        )
    for way in runtime.open_ways if runtime else ():
        _log.warning(way.who, what=way.remedy)
