"""What the server would log is no part of what people see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.factories import make_pod
from tests.integration.kubectl.cluster import cluster, placed
from tests.integration.kubectl.command import archived

PROGRAM = Path(sys.executable).with_name("kubectl-gpu")


def test_over_committed_cards_and_unknown_holders_print_no_log_lines(tmp_path: Path) -> None:
    """In a process of its own, which nobody has told where logs go."""
    pods = [placed("one", "gpu-1", 10, 0), placed("two", "gpu-1", 10, 0), make_pod("lost", 3, node="gpu-1")]
    archive = archived(cluster(pods=pods), tmp_path)
    done = subprocess.run([PROGRAM, "nodes", "gpu-1", "--from", archive], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["NODE", "gpu-1", "gpu-1"]


@pytest.mark.parametrize(("node", "code"), [pytest.param("gpu-1", 0, id="found"), pytest.param("none", 1, id="error")])
def test_all_is_written_and_the_exit_code_is_kept(node: str, code: int, tmp_path: Path) -> None:
    archive = archived(cluster(), tmp_path)
    done = subprocess.run([PROGRAM, "nodes", node, "--from", archive], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert [bool(done.stdout), bool(done.stderr)] == [code == 0, code == 1]


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    archive = archived(cluster(), tmp_path)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([PROGRAM, "nodes", "--from", archive], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
