"""The driver's files for a container, found below the driver root.

The driver's libraries all end with its version. A program asks for them by other names, such as libcuda.so.1. If the
NVIDIA container toolkit is on the host, its hook makes these links and enters the libraries in the container's loader
cache. Without it, each library is mounted once under each of its names, in the folders that the loaders of Debian's and
of Red Hat's family search without a cache.
"""

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aliquot.agent.devices import ContainerEdits, Hook, Mount
from aliquot.agent.nvidia.driver_library import LIBRARY_FOLDERS, DriverRoot, find_driver_root
from aliquot.errors import Refused
from aliquot.plain import why

_CUDA = re.compile(r"libcuda\.so\.(\d+\.[\d.]+)")
_WITHOUT_VERSION = re.compile(r"(libnvidia-nvvm70|libnvidia-egl-[a-z0-9]+)\.so\.[\d.]+")
"""Libraries of the driver with a version of their own."""
_SEARCHED: Mapping[str, Sequence[str]] = {
    "x86_64": ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"),
    "aarch64": ("/usr/lib/aarch64-linux-gnu", "/usr/lib64"),
}
_PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin")
_PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_DATA = (
    "etc/OpenCL/vendors/nvidia.icd",
    "etc/vulkan/icd.d/nvidia_icd.json",
    "etc/vulkan/implicit_layer.d/nvidia_layers.json",
    "usr/share/vulkan/icd.d/nvidia_icd.json",
    "usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "usr/share/nvidia/nvoptix.bin",
)
_SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket", "tmp/nvidia-mps")
_SOCKET_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
_HOOK_PROGRAMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("/usr/bin/nvidia-cdi-hook", ()),
    ("/usr/local/nvidia/toolkit/nvidia-cdi-hook", ()),
    ("/usr/bin/nvidia-ctk", ("hook",)),
    ("/usr/local/nvidia/toolkit/nvidia-ctk", ("hook",)),
)
"""NVIDIA's hooks for containers, with the words before the name of a hook: installed by a package, or by the GPU
Operator; before version 1.16 of the toolkit they were a part of nvidia-ctk."""


@dataclass(frozen=True)
class _Libraries:
    """The driver's libraries in one folder below the driver root, each with the links to it in that folder."""

    folder: str
    links: Mapping[str, Sequence[str]]


class DriverFiles:
    """The driver's files below a driver root of the host. `host_root` is where this process sees the host."""

    def __init__(self, driver_root: str, host_root: str, machine: str = platform.machine()) -> None:
        self._driver_root = driver_root
        self._host_root = Path(host_root)
        self._searched = _SEARCHED.get(machine, ())

    @property
    def used(self) -> PurePosixPath | None:
        """The driver root on the host, None if there is none with the driver's libraries."""
        found = self._find()
        return found[0].path if found else None

    def edits(self, *, with_hooks: bool = True) -> ContainerEdits | None:
        """What a container needs of the driver besides device nodes, None if there are no libraries."""
        found = self._find()
        if found is None:
            return None
        root, folder, version = found
        libraries = _libraries(root, folder, version)
        others = (*_programs(root), *_firmware(root, version), *_data(root), *_sockets(root))
        hooks = (program for program in _HOOK_PROGRAMS if with_hooks and self._is_on_host(program[0]))
        hook = next(hooks, None)
        if hook is None:
            return ContainerEdits(mounts=(*_under_every_name(root, libraries, self._searched), *others))
        mounts = (*_under_own_names(root, libraries), *others)
        return ContainerEdits(mounts=mounts, hooks=tuple(_hooks(*hook, libraries)))

    def _find(self) -> tuple[DriverRoot, str, str] | None:
        """The driver root, the folder below it that has libcuda, and the version of the driver."""
        root = find_driver_root(self._driver_root, str(self._host_root))
        if root is None:
            return None
        for folder in LIBRARY_FOLDERS:
            for path in sorted((root.here / folder).glob("libcuda.so.*")):
                if (match := _CUDA.fullmatch(path.name)) and path.is_file() and not path.is_symlink():
                    return root, folder, match[1]
        return None

    def _is_on_host(self, path: str) -> bool:
        return (self._host_root / path.lstrip("/")).is_file()


def _libraries(root: DriverRoot, folder: str, version: str) -> _Libraries:
    links: dict[str, list[str]] = {}
    targets: dict[str, str] = {}
    try:
        with os.scandir(root.here / folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    targets[entry.name] = Path(entry).readlink().name
                elif entry.name.endswith(f".so.{version}") or _WITHOUT_VERSION.fullmatch(entry.name):
                    links[entry.name] = []
    except OSError as error:  # an update of the driver is under way
        raise Refused(f"the driver's libraries in {_host_path(root, folder)} cannot be read: {why(error)}") from error
    for name in sorted(targets):
        if (library := _end(name, targets)) in links:
            links[library].append(name)
    return _Libraries(folder, dict(sorted(links.items())))


def _end(name: str, targets: dict[str, str]) -> str:
    """Where links inside one folder lead."""
    for _ in targets:
        if name not in targets:
            break
        name = targets[name]
    return name


def _host_path(root: DriverRoot, inside: str) -> str:
    return str(PurePosixPath(root.path, inside))


def _seen_from_host(root: DriverRoot, path: Path) -> str:
    return _host_path(root, str(path.relative_to(root.here)))


def _under_own_names(root: DriverRoot, libraries: _Libraries) -> Iterator[Mount]:
    for name in libraries.links:
        inside = f"{libraries.folder}/{name}"
        yield Mount(f"/{inside}", _host_path(root, inside))


def _under_every_name(root: DriverRoot, libraries: _Libraries, searched: Sequence[str]) -> Iterator[Mount]:
    for library, links in libraries.links.items():
        source = _host_path(root, f"{libraries.folder}/{library}")
        for folder in dict.fromkeys((f"/{libraries.folder}", *searched)):
            for name in (library, *links):
                yield Mount(f"{folder}/{name}", source)


def _hooks(program: str, words: tuple[str, ...], libraries: _Libraries) -> Iterator[Hook]:
    start = (program.rpartition("/")[2], *words)
    folder = f"/{libraries.folder}"
    links = [f"{library}::{folder}/{name}" for library, names in libraries.links.items() for name in names]
    linked = tuple(word for link in links for word in ("--link", link))
    if linked:
        yield Hook("createContainer", program, (*start, "create-symlinks", *linked))
    yield Hook("createContainer", program, (*start, "update-ldcache", "--folder", folder))


def _programs(root: DriverRoot) -> Iterator[Mount]:
    for name in _PROGRAMS:
        if path := root.find(name, _PROGRAM_FOLDERS):
            yield Mount(f"/usr/bin/{name}", _seen_from_host(root, path))


def _firmware(root: DriverRoot, version: str) -> Iterator[Mount]:
    for path in sorted((root.here / "lib" / "firmware" / "nvidia" / version).glob("gsp*.bin")):
        yield Mount(f"/lib/firmware/nvidia/{version}/{path.name}", _seen_from_host(root, path))


def _data(root: DriverRoot) -> Iterator[Mount]:
    for inside in map(PurePosixPath, _DATA):
        if path := root.find(inside.name, (str(inside.parent),)):
            yield Mount(f"/{inside}", _seen_from_host(root, path))


def _sockets(root: DriverRoot) -> Iterator[Mount]:
    for inside in _SOCKETS:
        if (root.here / inside).exists():
            yield Mount(f"/{inside}", _host_path(root, inside), _SOCKET_OPTIONS)
