"""Device nodes with the numbers of NVIDIA's, without a driver behind them."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

_GPU_MAJOR = 195
_UVM_MAJOR = 235


def make(folder: Path, minors: Iterable[int]) -> None:
    folder.mkdir(exist_ok=True)
    for minor in minors:
        _make(folder / f"nvidia{minor}", _GPU_MAJOR, minor)
    _make(folder / "nvidiactl", _GPU_MAJOR, 255)
    _make(folder / "nvidia-uvm", _UVM_MAJOR, 0)
    _make(folder / "nvidia-uvm-tools", _UVM_MAJOR, 1)


def _make(node: Path, major: int, minor: int) -> None:
    os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    node.chmod(0o666)
