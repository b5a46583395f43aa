"""Each plug-in as one file, run by a Python that has nothing installed."""

import hashlib
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
import yaml

import aliquot
from plugins import krew
from plugins.bootstrap import start
from plugins.building import PLUGINS, build, own_package
from plugins.building import of_this_python as packages_here
from tests.integration.kubectl.cluster import cluster
from tests.integration.kubectl.command import archived, gpu

_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    for plugin in PLUGINS:
        build(plugin, {_HERE: packages_here(plugin.needs)}, folder / plugin.name)
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def run(python: Path, file: Path, *arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "XDG_CACHE_HOME": str(cache)}
    command = [str(python), "-W", "error", str(file), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_kubectl_gpu_runs_with_a_bare_python(files: Path, python: Path, tmp_path: Path) -> None:
    archive = archived(cluster(), tmp_path)
    for _ in ("unpacks", "finds it unpacked"):
        done = run(python, files / "kubectl-gpu", "queue", "-A", "--from", archive, cache=tmp_path / "cache")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == gpu("queue", "-A", "--from", archive).out
    unpacked = list((tmp_path / "cache" / "aliquot").iterdir())
    assert [each.name.split("-")[-1] for each in unpacked] == [_HERE]
    assert (tmp_path / "cache" / "aliquot").stat().st_mode & 0o077 == 0


def test_kubectl_inspect_gpushare_runs_with_a_bare_python(files: Path, python: Path, tmp_path: Path) -> None:
    done = run(python, files / "kubectl-inspect-gpushare", cache=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("Failed due to no API server to talk to")
    assert done.stderr == ""


def test_a_plugin_runs_by_its_name_as_kubectl_does(files: Path, python: Path, tmp_path: Path) -> None:
    environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path)}
    (python.parent / "python3").unlink(missing_ok=True)
    (python.parent / "python3").symlink_to(python)
    done = subprocess.run(
        [files / "kubectl-gpu", "--version"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"kubectl-gpu {aliquot.__version__}\n"


def test_another_python_is_told_so() -> None:
    with pytest.raises(SystemExit, match=f"kubectl-gpu is made for Python 2.7, and this is {_HERE}"):
        start("kubectl-gpu", "", ("2.7",), "nothing:nothing")


def test_every_module_that_a_plugin_may_import_is_in_its_file() -> None:
    held = own_package(Path("src"))
    assert {"aliquot/kubectl/gpu/nodes.py", "aliquot/engine/judging.py", "aliquot/errors.py"} <= held.keys()
    assert not any(name.startswith(("aliquot/agent", "aliquot/app", "aliquot/endpoints")) for name in held)


@pytest.mark.parametrize("name", [plugin.name for plugin in PLUGINS])
def test_krew_gets_an_archive_and_a_manifest(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text("the plug-in")
    manifest = yaml.safe_load(krew.write(file, "https://example.com/releases/").read_text())
    (place,) = manifest["spec"]["platforms"]
    archive = tmp_path / place["uri"].rpartition("/")[2]
    assert manifest["metadata"]["name"] == name.removeprefix("kubectl-")
    assert manifest["spec"]["version"] == f"v{aliquot.__version__}"
    assert place["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as packed:
        assert {each["from"] for each in place["files"]} == set(packed.getnames())
        assert packed.getmember(place["bin"]).mode == 0o755
