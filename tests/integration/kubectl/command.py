"""`kubectl gpu` and other plug-ins within the test's own process: a process of its own would take most of the time."""

import asyncio
import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from aliquot.kubectl.gpu import main
from aliquot.reports.archive import DOCTOR, write_archive
from aliquot.reports.doctor import Facts, examine
from aliquot.reports.objects import ClusterObjects
from aliquot.reports.view import view_of


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


def archived(objects: ClusterObjects, folder: Path, facts: Facts | None = None) -> str:
    """With what `doctor` found, if there are facts for it."""
    path = folder / "cluster.tar.gz"
    found = {} if facts is None else {DOCTOR: msgspec.json.encode(examine(view_of(objects), facts))}
    with path.open("wb") as file:
        write_archive(file, objects, found)
    return str(path)
