"""The `aliquot` command as a process of its own."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fakes import SECONDS, until

ALIQUOT = (sys.executable, "-m", "aliquot")
LONGEST = 6 * SECONDS
"""A process starts slowly on a busy machine."""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    def clean(self) -> "Ended":
        assert "Traceback" not in self.err + self.out, self.err
        return self


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._seen = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    async def says(self, text: str) -> None:
        """Return when a line with this text has come, from either of its mouths."""
        async with asyncio.timeout(LONGEST):
            while text not in self._seen:
                assert self._process.stdout is not None
                line = await self._process.stdout.readline()
                assert line, f"it ended without {text!r}:\n{self._seen}"
                self._seen += line.decode()

    def number(self, before: str) -> int:
        """The number that followed this text."""
        return int(re.search(f"{before}([0-9]+)", self._seen)[1])  # type: ignore[index]

    async def is_stopped(self) -> None:
        """Return when the kernel says that it stands still."""
        status = Path(f"/proc/{self._process.pid}/stat")
        await until(lambda: status.read_text().rsplit(")", 1)[1].split()[0] == "T", "the process is stopped")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> Ended:
        self.send(number)
        return await self.end()

    async def end(self) -> Ended:
        async with asyncio.timeout(LONGEST):
            out, err = await self._process.communicate()
        assert self._process.returncode is not None
        return Ended(self._process.returncode, self._seen + out.decode(), (err or b"").decode())


@asynccontextmanager
async def started(*command: str, merged: bool = True, **environment: str) -> AsyncIterator[Process]:
    """A process whose two outputs are one stream; ended, if it has not, when the block is left."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT if merged else asyncio.subprocess.PIPE,
        env=_environment(environment),
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(*arguments: str, command: tuple[str, ...] = ALIQUOT, **environment: str) -> Ended:
    async with started(*command, *arguments, merged=False, **environment) as process:
        return await process.end()


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    ours = ("ALIQUOT_", "KUBE", "NODE_NAME")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    ours_alone = {f"ALIQUOT_{endpoint}_ENABLED": "false" for endpoint in ("ADMISSION", "ELASTIC", "NVIDIA")}
    ours_alone |= {f"ALIQUOT_{port}_PORT": "0" for port in ("NATIVE", "HEALTH")}
    usual = {"HOME": "/nonexistent", "PYTHONUNBUFFERED": "1", **ours_alone}
    return kept | usual | dict(more)
