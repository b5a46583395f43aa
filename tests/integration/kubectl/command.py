"""`kubectl gpu` and other plug-ins within the test's own process: a process of its own would take most of the time."""

import asyncio
import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aliquot.kubectl.gpu import main
from aliquot.reports.archive import write_archive
from aliquot.reports.objects import ClusterObjects


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def gpu(*arguments: str) -> Ended:
    return run_to_end(main, *arguments)


def run_to_end(program: Callable[[Sequence[str]], None], *arguments: str) -> Ended:
    """The main function of a plug-in."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program(arguments)
        except SystemExit as ending:
            code = int(ending.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


async def gpu_beside(*arguments: str) -> Ended:
    """The same while this loop answers, because the API server runs on it."""
    return await asyncio.to_thread(gpu, *arguments)


def archived(objects: ClusterObjects, folder: Path) -> str:
    path = folder / "cluster.tar.gz"
    with path.open("wb") as file:
        write_archive(file, objects, {})
    return str(path)
