"""NVIDIA's container runtime on this node: what its configuration says, and what it reads in a container.

It stands between containerd and runc, for every container or for those of a RuntimeClass. It reads variables of the
finished container, in which ours have won over those of image and pod, and adds cards and driver files by them.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta, field

from aliquot.agent.devices import OpenWay
from aliquot.agent.runtime import Handler
from aliquot.errors import BadConfig
from aliquot.model import Gpu
from aliquot.model.bounds import LARGEST_RUNTIME_CONFIG, require_size
from aliquot.plain import why

_log = structlog.get_logger()

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_NOTHING = "void"
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
_COMPUTING = {CAPABILITIES: "compute,utility"}
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
NO_MORE_THAN_COMPUTING = {**_COMPUTING, **_EXTRAS}
"""What a container with cards may get from it besides them."""
OBEYED_BY_DEFAULT = frozenset((VISIBLE, *_EXTRAS))
"""Variables by which a container gets devices of its own choice."""

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

    def __str__(self) -> str:
        return f"handler {', '.join(self.handlers)}{', the default' if self.is_default else ''}"

    @property
    def adds_files(self) -> bool:
        """Whether it adds the driver's files to every container that names cards."""
        return self.is_default and self.from_environment

    @property
    def obeyed_variables(self) -> frozenset[str]:
        """The variables by which a container gets devices of its own choice."""
        return OBEYED_BY_DEFAULT.union(self.other_variables) if self.from_environment else frozenset()

    @property
    def open_ways(self) -> Sequence[OpenWay]:
        """How it gives cards to containers that ask for none."""
        who = "every container" if self.is_default else f"every container of a RuntimeClass with {self}"
        path = self.config or f"/etc/{_CONFIG}"
        ways = []
        if self.from_environment:
            what = f"{who} that asks for no GPU gets all cards if its image or pod sets {VISIBLE}=all"
            first = "once our specs carry the driver's files, "
            ways.append(OpenWay(what, f"{first}set {_FROM_ENVIRONMENT} = false in {path}, and restart the agent"))
        if self.from_mounts:
            what = f"{who} gets the cards that it names as mounts of /dev/null, whatever else it was given"
            ways.append(OpenWay(what, f"set {_FROM_MOUNTS} = false in {path}, and restart the agent"))
        return ways

    def environment(self, gpus: Sequence[Gpu], has_driver_files: bool) -> Mapping[str, str]:
        """What it reads in a container with these cards, whose spec carries the driver's files or not."""
        named = (VISIBLE, *self.other_variables)
        if has_driver_files:
            return dict.fromkeys(named, _NOTHING)
        return {**dict.fromkeys(named, ",".join(gpu.uuid for gpu in gpus)), **NO_MORE_THAN_COMPUTING}


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
