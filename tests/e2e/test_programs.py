"""Where the rig's programs are taken from; small scripts stand in for them."""

from pathlib import Path

import pytest

from tests.rig import programs

pytestmark = pytest.mark.e2e

_FITTING = {
    "etcd": "etcd Version: 3.5.21",
    "containerd": "containerd github.com/containerd/containerd/v2 v2.0.1 abc",
    "containerd-shim-runc-v2": "containerd-shim-runc-v2:\n  Version:  v2.0.1",
    "ctr": "ctr github.com/containerd/containerd/v2 v2.0.1",
    "kube-apiserver": "Kubernetes v1.37.4",
    "kube-controller-manager": "Kubernetes v1.37.4",
    "kube-scheduler": "Kubernetes v1.37.4",
    "kubectl": "Client Version: v1.37.4\nKustomize Version: v5.8.0",
    "kubelet": "Kubernetes v1.37.4",
}


class Machine:
    """A machine with nothing but the folders of this test: compiled, on PATH, assets."""

    def __init__(self, folder: Path) -> None:
        self.on_path = folder / "path"
        self.assets = folder / "assets"
        self.cache = folder / "cache"
        for made in (self.on_path, self.assets):
            made.mkdir()
        for source in programs.SOURCES:
            compiled = self.cache / "aliquot" / "rig" / source.key
            compiled.mkdir(parents=True)
            for name in source.programs:
                (compiled / name).touch()

    def install(self, folder: Path, name: str, says: str) -> Path:
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{says}'\n")
        program.chmod(0o755)
        return program

    def compiled(self, path: Path) -> bool:
        return path.is_relative_to(self.cache)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(made.on_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.cache))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return made


def find() -> dict[str, Path]:
    return programs.find(lambda text: pytest.fail(f"nothing should be compiled here: {text}"))


def test_a_bare_machine_uses_what_was_compiled(machine: Machine) -> None:
    found = find()
    assert set(found) == set(_FITTING)
    assert all(machine.compiled(path) for path in found.values())


@pytest.mark.parametrize("name", _FITTING)
def test_a_fitting_version_on_path_is_used(machine: Machine, name: str) -> None:
    program = machine.install(machine.on_path, name, _FITTING[name])
    assert find()[name] == program


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kubelet", "Kubernetes v1.36.9"),
        ("kubelet", "Kubernetes v1.38.0"),
        ("kubectl", "Client Version: v1.32.4"),
        ("containerd", "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1"),
        ("etcd", "etcd Version: 3.4.23"),
        ("etcd", "no idea"),
    ],
)
def test_another_version_on_path_is_not(machine: Machine, name: str, says: str) -> None:
    machine.install(machine.on_path, name, says)
    assert machine.compiled(find()[name])


def test_kubebuilder_assets_come_first(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(machine.assets))
    machine.install(machine.on_path, "etcd", _FITTING["etcd"])
    ready = machine.install(machine.assets, "etcd", "built by hand")
    found = find()
    assert found["etcd"] == ready
    assert machine.compiled(found["kubelet"])
