"""One way of injection per node: who adds the driver's files to a container, and what NVIDIA's runtime may add.

NVIDIA's container runtime stands between containerd and runc, for every container or for those of a RuntimeClass. It
reads variables of the finished container, in which ours have won over those of image and pod, and adds cards and driver
files by them. So a spec of ours always says what that runtime is to do:

- Our spec carries the driver's files: `void`, which makes it add nothing, whatever the other variables say.
- Our spec does not: exactly the container's cards, only what computing needs, and none of its extras.

Containers that ask for no GPU get no spec from us. What such a container gets is up to the configuration of NVIDIA's
runtime, and the agent warns if that is open.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta, field

from aliquot.agent.devices import ContainerEdits
from aliquot.agent.nvidia.driver_files import DriverFiles
from aliquot.agent.nvidia.toolkit_spec import ToolkitSpecs
from aliquot.agent.runtime import Handler
from aliquot.errors import BadConfig
from aliquot.model import Gpu
from aliquot.model.bounds import LARGEST_RUNTIME_CONFIG, require_size
from aliquot.plain import why

_log = structlog.get_logger()

_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_NOTHING = "void"
_COMPUTING = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
_EXTRAS = dict.fromkeys(
    (
        "NVIDIA_IMEX_CHANNELS",
        "NVIDIA_NVSWITCH",
        "NVIDIA_GDS",
        "NVIDIA_GDRCOPY",
        "NVIDIA_MOFED",
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_MIG_MONITOR_DEVICES",
    ),
    "",
)
"""Variables by which a container asks NVIDIA's runtime for more than cards."""

_PROGRAM = "nvidia-container-runtime"
"""How the names of its programs begin: there are also one with `.cdi` and one with `.legacy` at its end."""
_CONFIG = "nvidia-container-runtime/config.toml"
_FROM_ENVIRONMENT = "accept-nvidia-visible-devices-envvar-when-unprivileged"
_FROM_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"


class _Config(msgspec.Struct):
    """What counts here of the configuration of NVIDIA's runtime, with its defaults."""

    from_environment: bool = field(name=_FROM_ENVIRONMENT, default=True)
    from_mounts: bool = field(name=_FROM_MOUNTS, default=False)
    swarm_resource: Annotated[str, Meta(max_length=1024)] = field(name="swarm-resource", default="")


@dataclass(frozen=True)
class NvidiaRuntime:
    """NVIDIA's container runtime on this node."""

    handlers: tuple[str, ...]
    """The handlers of containerd that use it."""
    is_default: bool
    config: str = ""
    """The path of its configuration on the host; empty if there is none."""
    from_environment: bool = True
    from_mounts: bool = False
    other_variables: tuple[str, ...] = ()
    """Variables that it prefers to NVIDIA_VISIBLE_DEVICES."""

    @property
    def adds_files(self) -> bool:
        """Whether it adds the driver's files to every container that names cards."""
        return self.is_default and self.from_environment

    def environment(self, gpus: Sequence[Gpu], has_driver_files: bool) -> Mapping[str, str]:
        """What it reads in a container with these cards, whose spec carries the driver's files or not."""
        named = (_VISIBLE, *self.other_variables)
        if has_driver_files:
            return dict.fromkeys(named, _NOTHING)
        return {**dict.fromkeys(named, ",".join(gpu.uuid for gpu in gpus)), **_COMPUTING, **_EXTRAS}


def find_nvidia_runtime(handlers: Iterable[Handler], host_root: Path) -> NvidiaRuntime | None:
    """NVIDIA's runtime among containerd's handlers, with its configuration on the host. None without it."""
    found = [each for each in handlers if PurePosixPath(each.program).name.startswith(_PROGRAM)]
    if not found:
        return None
    path, config = _read_config((PurePosixPath(each.program) for each in found), host_root)
    return NvidiaRuntime(
        handlers=tuple(each.name for each in found),
        is_default=any(each.is_default for each in found),
        config=path,
        from_environment=config.from_environment,
        from_mounts=config.from_mounts,
        other_variables=tuple(filter(None, map(str.strip, config.swarm_resource.split(",")))),
    )


def _read_config(programs: Iterable[PurePosixPath], host_root: Path) -> tuple[str, _Config]:
    """The GPU Operator keeps the configuration beside the program. One that cannot be read counts as NVIDIA's default,
    which is open."""
    paths = [*(program.parent / ".config" / _CONFIG for program in programs), PurePosixPath("/etc", _CONFIG)]
    for path in paths:
        try:
            with (host_root / str(path).lstrip("/")).open("rb") as file:
                text = file.read(LARGEST_RUNTIME_CONFIG + 1).decode()
            require_size("it", text, LARGEST_RUNTIME_CONFIG, BadConfig)
            return str(path), msgspec.convert(tomllib.loads(text), _Config)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError, msgspec.ValidationError, BadConfig) as error:
            _log.warning(
                "the configuration of NVIDIA's container runtime cannot be read", path=str(path), why=why(error)
            )
            return str(path), _Config()
    return "", _Config()


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
        """Those that NVIDIA's runtime obeys, unless it is known that it is not there or obeys none."""
        if self._is_complete and not (self._runtime and self._runtime.from_environment):
            return frozenset()
        others = self._runtime.other_variables if self._runtime else ()
        return frozenset((_VISIBLE, *others, *_EXTRAS))

    def edits(self, gpus: Sequence[Gpu], *, with_cdi: bool = True) -> ContainerEdits:
        """The driver's files for a container with these cards, if they are found, and what NVIDIA's runtime reads."""
        files = (self._toolkit.edits(gpus) or self._driver.edits()) if with_cdi else self._without_cdi()
        variables = self._runtime.environment(gpus, files is not None) if self._runtime else {}
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
    """How containers get their cards on this node, and what is open."""
    _log.info(
        "containers get the driver's files",
        source=source or ("from NVIDIA's container runtime" if runtime else "none"),
        nvidia_runtime=_shown(runtime) if runtime else "not configured in the container runtime",
    )
    if not source and not (runtime and runtime.adds_files):
        _log.warning(
            "CUDA programs will not find the driver's libraries: there is neither a CDI spec of the NVIDIA container "
            "toolkit nor a driver root with libcuda",
            what="run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, or set --driver-root and --host-root",
        )
    if runtime is not None:
        _say_what_is_open(runtime)


def _shown(runtime: NvidiaRuntime) -> str:
    return f"handler {', '.join(runtime.handlers)}{', the default' if runtime.is_default else ''}"


def _say_what_is_open(runtime: NvidiaRuntime) -> None:
    who = "every container" if runtime.is_default else f"every container of a RuntimeClass with {_shown(runtime)}"
    path = runtime.config or f"/etc/{_CONFIG}"
    if runtime.from_environment:
        _log.warning(
            f"{who} that asks for no GPU gets all cards if its image or pod sets {_VISIBLE}=all",
            what=f"set {_FROM_ENVIRONMENT} = false in {path}, once our specs carry the driver's files",
        )
    if runtime.from_mounts:
        _log.warning(
            f"{who} gets the cards that it names as mounts of /dev/null, whatever else it was given",
            what=f"set {_FROM_MOUNTS} = false in {path}",
        )
