"""The cgroup below which one kubelet of a rig puts its pods, in every hierarchy that the machine has."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_EMPTYING_SECONDS = 10.0


def create(name: str) -> None:
    for hierarchy in _hierarchies():
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        _inherit_cpus(hierarchy, folder)


def remove(name: str) -> None:
    """Remove it with all below; waits a little for processes in it that are just ending."""
    end = time.monotonic() + _EMPTYING_SECONDS
    for hierarchy in _hierarchies():
        while (hierarchy / name).exists():
            try:
                _remove_tree(hierarchy / name)
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)


def kill(name: str) -> None:
    """Kill every process in it or below, in whatever namespaces it is."""
    for hierarchy in _hierarchies():
        for processes in (hierarchy / name).rglob("cgroup.procs"):
            for process in processes.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)


def _hierarchies() -> Iterator[Path]:
    """One folder on a machine with cgroup v2, several on one with v1."""
    if (_ROOT / "cgroup.procs").exists():
        yield _ROOT
    else:
        yield from (each for each in sorted(_ROOT.iterdir()) if (each / "cgroup.procs").exists())


def _inherit_cpus(hierarchy: Path, folder: Path) -> None:
    """A new cpuset of cgroup v1 is empty, and no process may enter it so."""
    if (_ROOT / "cgroup.procs").exists():
        return
    for setting in ("cpuset.cpus", "cpuset.mems"):
        if (folder / setting).exists():
            (folder / setting).write_text((hierarchy / setting).read_text())


def _remove_tree(folder: Path) -> None:
    for below, _, _ in os.walk(folder, topdown=False):
        Path(below).rmdir()
