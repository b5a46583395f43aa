"""Device nodes with the numbers of NVIDIA's, without a driver behind them."""

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

_GPU_MAJOR = 195
_UVM_MAJOR = 235
_CAPS_MAJOR = 236
_SWITCH_MAJOR = 237
_IMEX_MAJOR = 238


def make(folder: Path, minors: Iterable[int]) -> None:
    folder.mkdir(exist_ok=True)
    for minor in minors:
        add_card(folder, minor)
    _make(folder / "nvidiactl", _GPU_MAJOR, 255)
    _make(folder / "nvidia-uvm", _UVM_MAJOR, 0)
    _make(folder / "nvidia-uvm-tools", _UVM_MAJOR, 1)


def add_card(folder: Path, minor: int) -> Path:
    return _make(folder / f"nvidia{minor}", _GPU_MAJOR, minor)


class Capabilities:
    """The device nodes that open MIG instances, and the driver's list of them below /proc/driver."""

    def __init__(self, dev_folder: Path, proc_driver: Path) -> None:
        self._nodes = dev_folder / "nvidia-caps"
        self._list = proc_driver / "nvidia-caps" / "mig-minors"
        self._numbers: dict[str, int] = {}
        for file in (self._nodes, self._list.parent):
            file.mkdir()

    def add(self, card: int, gi: int, ci: int) -> dict[str, tuple[int, int]]:
        """Those of an instance of the card with this minor: their paths in a container, and their numbers."""
        gpu = f"gpu{card}/gi{gi}"
        minors = [self._add(name) for name in (f"{gpu}/access", f"{gpu}/ci{ci}/access")]
        self._list.write_text("".join(f"{name} {minor}\n" for name, minor in self._numbers.items()))
        return {f"/dev/nvidia-caps/nvidia-cap{minor}": (_CAPS_MAJOR, minor) for minor in minors}

    def remove(self) -> None:
        for folder in (self._nodes, self._list.parent):
            shutil.rmtree(folder)

    def _add(self, name: str) -> int:
        minor = self._numbers.setdefault(name, len(self._numbers) + 3)
        _make(self._nodes / f"nvidia-cap{minor}", _CAPS_MAJOR, minor)
        return minor


class Fabric:
    """The device nodes of a machine with NVSwitch and IMEX."""

    FOR_ALL: ClassVar = {
        "/dev/nvidia-nvswitchctl": (_SWITCH_MAJOR, 255),
        "/dev/nvidia-caps-imex-channels/channel0": (_IMEX_MAJOR, 0),
    }
    """Those that every container with a card gets."""
    _OTHERS: ClassVar = {
        "/dev/nvidia-nvswitch0": (_SWITCH_MAJOR, 0),
        "/dev/nvidia-caps-imex-channels/channel1": (_IMEX_MAJOR, 1),
        "/dev/nvidia-caps/nvidia-cap1": (_CAPS_MAJOR, 1),
        "/dev/nvidia-caps/nvidia-cap2": (_CAPS_MAJOR, 2),
    }
    """A switch and another job's channel; what may configure and watch MIG."""

    def __init__(self, dev_folder: Path) -> None:
        self._nodes: list[Path] = []
        for path, numbers in (self.FOR_ALL | self._OTHERS).items():
            node = dev_folder / path.removeprefix("/dev/")
            node.parent.mkdir(exist_ok=True)
            self._nodes.append(_make(node, *numbers))

    def remove(self) -> None:
        for node in self._nodes:
            node.unlink()
            if node.parent.name.startswith("nvidia-caps") and not any(node.parent.iterdir()):
                node.parent.rmdir()


def _make(node: Path, major: int, minor: int) -> Path:
    os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    node.chmod(0o666)
    return node
