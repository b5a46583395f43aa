"""Programs of Debian packages that must not be installed: installing containerd would start it as a service."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.rig.errors import RigError
from tests.rig.golang import Progress
from tests.rig.programs import cache_folder

_PACKAGE = "containerd"
_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")


def containerd(progress: Progress) -> dict[str, Path]:
    """Debian 12's containerd 1.6, which does not inject CDI devices; unpacked into the cache if it is not there yet."""
    folder = cache_folder() / "debian-containerd"
    if not folder.exists():
        progress("unpacking Debian's containerd")
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f"{folder.name}.") as part:
            unpacked = Path(part) / "unpacked"
            _run("dpkg", "-x", _downloaded(Path(part)), unpacked)
            try:
                (unpacked / "usr" / "bin").rename(folder)
            except OSError:
                if not folder.exists():  # another run was faster
                    raise
    return {name: folder / name for name in _PROGRAMS}


def _downloaded(folder: Path) -> Path:
    folder.chmod(0o777)  # apt downloads as a user of its own
    try:
        _run("apt-get", "download", _PACKAGE, folder=folder)
    except RigError:  # a machine that has never asked for the package lists
        _run("apt-get", "update", "-qq")
        _run("apt-get", "download", _PACKAGE, folder=folder)
    (package,) = folder.glob("*.deb")
    return package


def _run(*command: str | Path, folder: Path | None = None) -> None:
    if shutil.which(str(command[0])) is None:
        raise RigError(f"there is no {command[0]}: Debian's containerd is to be had on Debian only")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
