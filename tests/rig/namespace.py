"""The node's private mount and process namespaces, and processes inside them.

kubelet's device-plugins folder is fixed below /var/lib/kubelet and containers outlive their runtime. In namespaces
of their own, kubelet and containerd have that folder to themselves, and killing process 1 takes every shim,
container and mount with it. Sockets stay reachable from outside through the folders that are bound inside.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.rig import namespace_init
from tests.rig.processes import Process
from tests.rig.waiting import wait_for

_UNMOUNT = """
awk '$5 ~ "^/run/|^/var/lib/kubelet/pods/" {print $5}' /proc/self/mountinfo | sort -r | while read -r place; do
    umount -l "$place"
done
"""


class Namespace:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._init_id = 0
        self._inside: list[Process] = []
        command = [sys.executable, "-I", namespace_init.__file__, str(folder)]
        self._process = Process(
            "namespace",
            ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--", *command],
            log=folder / "namespace.log",
        )
        for name in namespace_init.REPLACED:
            (folder / name).mkdir(parents=True)
        shutil.copytree("/etc", folder / "etc", symlinks=True, dirs_exist_ok=True)

    def start(self) -> None:
        self._process.start()
        ready = self.folder / "ready"
        wait_for("the node's namespaces", ready.exists, seconds=10, processes=[self._process], every=0.01)
        self._init_id = int(ready.read_text())

    def end(self) -> None:
        """Kill everything inside; returns when the kernel has ended all of it."""
        if self._process.running:
            if self._init_id:
                os.kill(self._init_id, signal.SIGKILL)
            else:
                self._process.signal(signal.SIGKILL)
            self._process.wait(30.0)
        for process in self._inside:
            process.wait(10.0)

    def power_off(self) -> None:
        """Kill everything inside but process 1, and lose what a machine loses with its memory: /run, and the mounts of
        containers and pods."""
        inside = Path(f"/proc/{self._init_id}/ns/pid").readlink()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # it ended, or is none of ours
                if int(folder.name) != self._init_id and (folder / "ns" / "pid").readlink() == inside:
                    os.kill(int(folder.name), signal.SIGKILL)
        for process in self._inside:
            process.wait(10.0)
        subprocess.run(self.enter(["sh", "-c", _UNMOUNT]), check=True)
        run = self.folder / "run"
        for left in run.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()

    def process(
        self, name: str, argv: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None
    ) -> Process:
        made = _InsideProcess(self, name, argv, log=log, env=env)
        self._inside.append(made)
        return made

    def enter(self, argv: Sequence[str | Path]) -> list[str]:
        """A command line that runs `argv` inside."""
        inside = ["nsenter", f"--target={self._init_id}", "--mount", "--pid", "--"]
        return inside + [str(argument) for argument in argv]


class _InsideProcess(Process):
    """A process started through nsenter, which stays outside as the parent of the program itself."""

    def __init__(
        self,
        namespace: Namespace,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None,
    ) -> None:
        super().__init__(name, argv, log=log, env=env)
        self._namespace = namespace
        self._inside_argv = argv

    def start(self) -> None:
        self.argv = self._namespace.enter(self._inside_argv)
        super().start()

    def signal(self, number: signal.Signals) -> None:
        super().signal(number)
        if number is signal.SIGCONT:
            os.kill(super().pid, number)  # nsenter stops when its child is stopped, and must go on, too

    @property
    def pid(self) -> int:
        outside = super().pid
        children = Path(f"/proc/{outside}/task/{outside}/children")
        return wait_for(
            f"{self.name} to enter the node's namespaces",
            lambda: int((children.read_text().split() or ["0"])[0]),
            seconds=5,
            every=0.01,
        )
