"""NVIDIA's management library: finds it on the host and loads it.

The agent's own pod then needs neither NVIDIA's container runtime nor its variables. nvidia-ml-py opens the library by
its soname, and the dynamic loader answers with the one that this module has loaded.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aliquot.errors import NoDriver

AUTO = "auto"
KNOWN_ROOTS = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia")
"""The host's own files, the driver container of NVIDIA's GPU Operator, and the driver installer of GKE."""

LIBRARY = "libnvidia-ml.so.1"
LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/local/glibc/usr/lib",
)
"""Where distributions and installers put the driver's libraries, below a driver root."""
_LINKS = 40
"""As many links as Linux follows."""


@dataclass(frozen=True)
class DriverRoot:
    """A folder with the driver's files: its path on the host, and the folder where this process sees the host."""

    path: PurePosixPath
    host_root: Path = Path("/")

    @property
    def here(self) -> Path:
        """The root as this process sees it."""
        return self.host_root / self.path.relative_to("/")

    def find(self, name: str, folders: tuple[str, ...] = LIBRARY_FOLDERS) -> Path | None:
        """The file with this name in the first folder that has it, with all links followed, or None."""
        found = (self._followed(PurePosixPath(folder, name)) for folder in folders)
        return next((path for path in found if path is not None), None)

    def _followed(self, inside: PurePosixPath) -> Path | None:
        """Follow links as a process whose root is the driver root: an absolute link starts there, not at our root."""
        for _ in range(_LINKS):
            path = self.here / inside
            if not path.is_symlink():
                return path if path.is_file() else None
            target = PurePosixPath(path.readlink())
            inside = target.relative_to("/") if target.is_absolute() else inside.parent / target
        return None


def find_driver_root(driver_root: str, host_root: str) -> DriverRoot | None:
    """The driver root with this path on the host, or with `auto` the first known one that has the library. None if
    there is no library below it (yet)."""
    paths = KNOWN_ROOTS if driver_root == AUTO else (driver_root,)
    roots = (DriverRoot(PurePosixPath(path), Path(host_root)) for path in paths)
    return next((root for root in roots if root.find(LIBRARY)), None)


class DriverLibrary:
    """The library that this process uses. It is loaded once, for the life of the process."""

    def __init__(self, driver_root: str = AUTO, host_root: str = "/") -> None:
        self._driver_root = driver_root
        self._host_root = host_root
        self._is_loaded = False

    def load(self) -> str:
        """Load the library if that has not happened yet, and say in words which one it is, or where it is missing.

        With `auto`, a library that the dynamic loader finds by itself comes first: NVIDIA's container runtime put it
        there, or LD_LIBRARY_PATH names it. Raises NoDriver if there is a library that cannot be loaded.
        """
        if not self._is_loaded:
            self._is_loaded = (self._driver_root == AUTO and _loads(LIBRARY)) or self._load_below_root()
        if self._is_loaded:
            return _loaded_path()
        paths = ", ".join(KNOWN_ROOTS) if self._driver_root == AUTO else self._driver_root
        where = "" if self._host_root == "/" else f" in {self._host_root}"
        return f"no {LIBRARY} below {paths}{where}"

    def _load_below_root(self) -> bool:
        root = find_driver_root(self._driver_root, self._host_root)
        path = root.find(LIBRARY) if root else None
        if path is None:
            return False
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise NoDriver(f"the driver's library {path} cannot be loaded: {error}") from error
        return True


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def _loaded_path() -> str:
    """The file of the library in this process."""
    stem = LIBRARY.removesuffix(".1")
    with Path("/proc/self/maps").open() as maps:
        return next((line.split()[-1] for line in maps if stem in line), LIBRARY)
