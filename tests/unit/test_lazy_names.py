"""Packages whose names are imported when they are first used."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ["aliquot.control", "aliquot.engine", "aliquot.kube"]


def names_of(package: str) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The names of each module: as type checkers see them, and as they are imported."""
    tree = ast.parse(Path(str(importlib.import_module(package).__file__)).read_text())
    (branch,) = (node for node in tree.body if isinstance(node, ast.If))
    checked = {
        str(each.module).removeprefix(f"{package}."): {name.name for name in each.names}
        for each in branch.body
        if isinstance(each, ast.ImportFrom)
    }
    (given,) = (node for node in ast.walk(branch) if isinstance(node, ast.Dict))
    return checked, {module: set(names.split()) for module, names in ast.literal_eval(given).items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_the_names_that_are_imported(package: str) -> None:
    checked, imported = names_of(package)
    assert checked == imported


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_there_and_none_is_that_of_a_module(package: str) -> None:
    module, (_, imported) = importlib.import_module(package), names_of(package)
    names = set().union(*imported.values())
    assert all(hasattr(module, name) for name in names)
    folder = Path(str(module.__file__)).parent
    modules = {path.stem for path in folder.glob("*.py")} | {path.name for path in folder.iterdir() if path.is_dir()}
    assert not modules & names


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'aliquot.engine' has no attribute 'nothing'"):
        importlib.import_module("aliquot.engine").nothing  # noqa: B018


def loaded_with(command: str) -> set[str]:
    code = f"import sys, aliquot.kubectl.gpu.{command}; print(*sys.modules)"
    return {*subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()}


@pytest.mark.parametrize("command", ["nodes", "pods", "top", "waste", "cordon", "explain"])
def test_who_only_shows_what_is_held_loads_no_arrays(command: str) -> None:
    assert not {"numpy", "prometheus_client", "aiohttp", "click", "grpc"} & loaded_with(command)


@pytest.mark.parametrize("command", ["nodes", "pods", "top", "waste", "explain"])
def test_what_talks_to_servers_is_loaded_only_by_who_does(command: str) -> None:
    assert not {"asyncio", "ssl", "yaml"} & loaded_with(command)
