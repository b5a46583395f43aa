"""A shell into which commands are typed, as a person follows a guide."""

import os
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.rig.processes import WITH_PARENT

_DONE = "typed"


class Shell:
    """One bash for all commands, so that variables, folders and background jobs last. What it started ends with it."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._out, self._err, self._failed = (folder / name for name in (".out", ".err", ".failed"))
        self._popen = subprocess.Popen(
            [*WITH_PARENT, "bash", "--norc", "-o", "pipefail"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=dict(env),
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.communicate()

    def type(self, commands: str, seconds: float = 60) -> str:
        """What the commands print; AssertionError if one of them fails or they take too long."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._failed.write_text("")
        trap = f"""trap 'echo "exit code $?: $BASH_COMMAND" >> {self._failed}' ERR"""
        self._popen.stdin.write(f"{trap}\n{{\n{commands}\n}} >{self._out} 2>{self._err}\necho {_DONE}\n")
        self._popen.stdin.flush()
        ready, _, _ = select.select([self._popen.stdout], [], [], seconds)
        done = self._popen.stdout.readline().strip() if ready else ""
        trouble = f"{self._failed.read_text()}{self._written()}"
        assert done == _DONE, f"not done after {seconds:g} s, or the shell ended: {commands}\n{trouble}"
        assert not self._failed.read_text(), f"{commands}\n{trouble}"
        return self._out.read_text()

    def _written(self) -> str:
        """What was told beside the output: errors, and the logs of what runs in the background."""
        files = [self._err, *sorted(self._err.parent.glob("*.log"))]
        return "\n".join(f"--- {file.name}\n{file.read_text()[-3000:]}" for file in files if file.exists())
