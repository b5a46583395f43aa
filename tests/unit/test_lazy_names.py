"""Packages whose names are imported when they are first used."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ["aliquot.control", "aliquot.engine", "aliquot.kube"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_there_and_none_is_that_of_a_module(package: str) -> None:
    module = importlib.import_module(package)
    assert all(hasattr(module, name) for name in module.__all__)
    folder = Path(str(module.__file__)).parent
    modules = {path.stem for path in folder.glob("*.py")} | {path.name for path in folder.iterdir() if path.is_dir()}
    assert not modules & set(module.__all__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'aliquot.engine' has no attribute 'nothing'"):
        importlib.import_module("aliquot.engine").nothing  # noqa: B018


@pytest.mark.parametrize("command", ["nodes", "pods", "top", "waste", "cordon"])
def test_who_only_shows_what_is_held_loads_no_arrays(command: str) -> None:
    code = f"import sys, aliquot.kubectl.gpu.{command}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "prometheus_client", "aiohttp", "click", "grpc"} & set(loaded)
