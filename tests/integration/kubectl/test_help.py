"""Every command explains itself with examples, and the examples work."""

import asyncio
import os
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from aliquot.embedded.api import resources
from aliquot.kubectl.gpu import COMMANDS
from tests.fakes import ScriptedApi
from tests.integration.kubectl.cluster import NODES, cluster
from tests.integration.kubectl.command import archived, gpu, gpu_beside

pytestmark = pytest.mark.embedded_only("the cluster is put there as it is")

_MARKS = re.compile(r"[|><&$~(]")
_EXAMPLE = re.compile(r"(?m)^  ((?:source <\()?kubectl gpu .*?)(?:\s+#.*)?$")
EXAMPLES = [
    (name, line) for name in COMMANDS for line in _EXAMPLE.findall(import_module(f"aliquot.kubectl.gpu.{name}").EPILOG)
]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_of_itself(name: str) -> None:
    ended = gpu(name, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"usage: kubectl gpu {name} ")
    assert [line for known, line in EXAMPLES if known == name and f"kubectl gpu {name}" in line]


def test_help_without_a_command_names_them_all() -> None:
    assert all(f"  {name} " in gpu("--help").out for name in COMMANDS)
    assert gpu().out == gpu("--help").out
    assert gpu("--version").out.startswith("kubectl-gpu ")


@pytest.fixture
def filled(scripted: ScriptedApi, admin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cluster of the golden tests on an API server, and the files that the examples name."""
    objects = cluster()
    for namespace in ("research", "aliquot-nodes"):
        scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": namespace}})
    for kind, found in ((resources.NODES, objects.nodes), (resources.PODS, objects.pods)):
        for each in found:
            shown = msgspec.to_builtins(each)
            shown["metadata"] = {key: value for key, value in shown["metadata"].items() if value and key != "uid"}
            for container in shown["spec"].get("containers", ()):
                container["image"] = "registry.example/app:1"
            scripted.registry.create(kind, each.metadata.namespace, shown)
    (tmp_path / "pod.yaml").write_text(Path("examples/gpushare.yaml").read_text())
    archived(objects, tmp_path)
    (tmp_path / "cluster.tar.gz").rename(tmp_path / "incident.tar.gz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", admin)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
async def test_the_example_works(name: str, line: str, filled: Path) -> None:
    line = line.replace("GPU-4a8b0198-7b9c-5cdf-8c02-b5e1a27063b7", NODES["gpu-1"].gpus[0].uuid)
    line = line.replace("trainer-0", "trainer")
    if _MARKS.search(line):
        code, text = await _in_a_shell(line, filled)
    else:
        ended = await gpu_beside(*shlex.split(line)[2:])
        code, text = ended.code, ended.err
    may_fail = name in ("doctor",) or "--replicas" in line  # they say so by their code, too
    assert code == 0 or (may_fail and code == 1 and "error:" not in text), text


async def _in_a_shell(line: str, folder: Path) -> tuple[int, str]:
    """With a kubectl that knows only its plug-in."""
    programs = folder / ".local" / "bin"
    programs.mkdir(parents=True)
    (folder / ".config" / "fish" / "completions").mkdir(parents=True)
    kubectl = programs / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nshift\nexec {Path(sys.executable).with_name("kubectl-gpu")} "$@"\n')
    kubectl.chmod(0o755)
    line = line.replace("${fpath[1]}", str(folder))
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-o",
        "pipefail",
        "-c",
        line,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, err.decode()
