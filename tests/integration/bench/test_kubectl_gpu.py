"""The benchmark of `kubectl gpu` measures one cluster in two forms: an archive, and a server that sends its objects."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import kubectl_gpu, mirror

SIZE = mirror.Size(nodes=3, pods=6, events=0, peer_events=0, spaced_events=0)


@pytest.mark.parametrize("arguments", [("nodes", "--no-headers"), kubectl_gpu.EXPLAIN], ids=["nodes", "explain"])
def test_an_archive_and_a_server_show_the_same(arguments: tuple[str, ...], tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("kubectl-gpu")
    archive = kubectl_gpu.write_objects(tmp_path, SIZE)
    with mirror.served(SIZE, "--waits") as url:
        kubeconfig = kubectl_gpu.write_kubeconfig(tmp_path, url, SIZE)
        shown = [
            subprocess.run([program, *arguments, *source], capture_output=True, text=True, check=True).stdout
            for source in (("--from", archive), ("--kubeconfig", kubeconfig))
        ]
    assert shown[0] == shown[1]
    assert "gpu-node-00002" in shown[0]
