"""Programs of Debian packages that must not be installed: installing containerd or Prometheus would start it as a
service."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.rig.errors import RigError
from tests.rig.golang import Progress
from tests.rig.programs import cache_folder

_CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
_PROMETHEUS = ("prometheus", "promtool")


def containerd(progress: Progress) -> dict[str, Path]:
    """Debian 12's containerd 1.6, which does not inject CDI devices; unpacked into the cache if it is not there yet."""
    return _programs("containerd", _CONTAINERD, progress)


def prometheus(progress: Progress) -> dict[str, Path]:
    """Debian 12's Prometheus 2.42 and its promtool; unpacked likewise."""
    return _programs("prometheus", _PROMETHEUS, progress)


def prometheus_at_hand() -> dict[str, Path] | None:
    """The same if no download is needed."""
    folder = _folder("prometheus")
    return {name: folder / name for name in _PROMETHEUS} if folder.exists() else None


def _folder(package: str) -> Path:
    return cache_folder() / f"debian-{package}"


def _programs(package: str, names: Sequence[str], progress: Progress) -> dict[str, Path]:
    folder = _folder(package)
    if not folder.exists():
        progress(f"unpacking Debian's {package}")
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f"{folder.name}.") as part:
            unpacked = Path(part) / "unpacked"
            _run("dpkg", "-x", _downloaded(package, Path(part)), unpacked)
            try:
                (unpacked / "usr" / "bin").rename(folder)
            except OSError:
                if not folder.exists():  # another run was faster
                    raise
    return {name: folder / name for name in names}


def _downloaded(package: str, folder: Path) -> Path:
    folder.chmod(0o777)  # apt downloads as a user of its own
    try:
        _run("apt-get", "download", package, folder=folder)
    except RigError:  # a machine that has never asked for the package lists
        _run("apt-get", "update", "-qq")
        _run("apt-get", "download", package, folder=folder)
    (found,) = folder.glob("*.deb")
    return found


def _run(*command: str | Path, folder: Path | None = None) -> None:
    if shutil.which(str(command[0])) is None:
        raise RigError(f"there is no {command[0]}: Debian's packages are to be had on Debian only")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
