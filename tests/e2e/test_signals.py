"""A program as the first process of a container, which hears only of signals that it has a handler for."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

_IMPORT_THAT_NEVER_ENDS = """
import pathlib, signal
pathlib.Path({told!r}).touch()
while True:
    signal.pause()
"""


@pytest.mark.parametrize(
    "words", [["aliquot", "server"], ["aliquot", "agent"], ["gpu-admission"], ["gpushare-schd-extender"]], ids=" ".join
)
def test_a_first_process_can_be_ended_while_it_starts(tmp_path: Path, words: list[str]) -> None:
    told = tmp_path / "importing"
    (tmp_path / "structlog.py").write_text(_IMPORT_THAT_NEVER_ENDS.format(told=str(told)))
    program = Path(sys.executable).with_name(words[0])
    command: list[str | Path] = ["unshare", "--pid", "--fork", "--kill-child", program, *words[1:]]
    with subprocess.Popen(command, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)}) as outside:
        try:
            wait_for("the program to import", told.exists, seconds=30)
            (first,) = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
            subprocess.run(["kill", f"-{signal.SIGTERM.value}", first], check=True)
            assert outside.wait(30) == 128 + signal.SIGTERM
        finally:
            outside.kill()
