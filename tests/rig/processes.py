"""Processes of the rig: their logs in the rig's folder, their end tied to that of the rig.

Every process asks the kernel to be killed when the Python process that started it is gone (however it went), so
nothing survives a killed test run. That bond is to the starting *thread*: start and stop the rig in the main thread.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.rig.errors import RigError

WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
"""Before a command line: the program is killed when its parent ends."""


class Process:
    """One program that can be started, stopped and started again."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.argv = [str(argument) for argument in argv]
        self.log = log
        self.env = dict(env or {})
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        return None if self._popen is None else self._popen.poll()

    @property
    def pid(self) -> int:
        """The process id of the program itself, as seen on this machine."""
        return self._started().pid

    def start(self) -> None:
        if self.running:
            raise RigError(f"{self.name} is running already")
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                [*WITH_PARENT, *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"NO_PROXY": "*", "no_proxy": "*"} | self.env,
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            os.kill(self.pid, number)

    def stop(self, seconds: float = 10.0) -> None:
        """End the program with SIGTERM, or with SIGKILL when that takes longer than `seconds`."""
        self.signal(signal.SIGTERM)
        try:
            self.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait(10.0)

    def wait(self, seconds: float) -> int | None:
        return None if self._popen is None else self._popen.wait(seconds)

    def restart(self) -> None:
        self.stop()
        self.start()

    def tail(self, lines: int = 20) -> str:
        """The last lines of the log, headed by where to read the rest."""
        try:
            last = self.log.read_text(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            last = []
        return "\n".join([f"--- {self.name}: {self.log}", *last])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._popen is None:
            raise RigError(f"{self.name} was never started")
        return self._popen
