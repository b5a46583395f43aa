"""What the server would log is no part of what people see."""

import subprocess
import sys
from pathlib import Path

from tests.factories import make_pod
from tests.integration.kubectl.cluster import cluster, placed
from tests.integration.kubectl.command import archived


def test_over_committed_cards_and_unknown_holders_print_no_log_lines(tmp_path: Path) -> None:
    """In a process of its own, which nobody has told where logs go."""
    pods = [placed("one", "gpu-1", 10, 0), placed("two", "gpu-1", 10, 0), make_pod("lost", 3, node="gpu-1")]
    archive = archived(cluster(pods=pods), tmp_path)
    program = Path(sys.executable).with_name("kubectl-gpu")
    done = subprocess.run([program, "nodes", "gpu-1", "--from", archive], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["NODE", "gpu-1", "gpu-1"]
