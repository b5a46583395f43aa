"""docs/extend.md works as it stands: its files make a package, which a fresh process finds and uses."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "extend.md"
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (?P<path>\S+\.\w+)\n")


def blocks(language: str) -> list[str]:
    return [block["text"] for block in BLOCK.finditer(PAGE.read_text()) if block["language"] == language]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's files, and beside them what pip would leave of the package."""
    for text in (*blocks("python"), *blocks("toml")):
        named = FILE.match(text)
        assert named, f"a code block does not begin with its file's name: {text[:40]}"
        path = tmp_path / named["path"]
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    install(tmp_path)
    return tmp_path


def install(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n")
    groups = [
        "\n".join([f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items())])
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n\n".join(groups))


def run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_s_package_is_found_and_prints_what_the_page_says(folder: Path) -> None:
    (expected,) = blocks("text")
    assert run(folder, "try_it.py") == expected


def test_what_the_page_s_dialect_writes_is_read_back(folder: Path) -> None:
    script = """
import msgspec
from aliquot.dialects import cards_of, holding_of, standard_dialects
from aliquot.model import Node, Pod
pod = dict(standard_dialects()["acme"].sample_pod())
pod["metadata"] |= {"annotations": {"acme.example/card": "1"}}
pod["spec"] |= {"nodeName": "n1"}
capacity = {"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
labels = {"dialect.aliquot.io/acme": "true"}
node = msgspec.convert({"metadata": {"name": "n1", "labels": labels}, "status": {"capacity": capacity}}, Node)
cards = cards_of(node, standard_dialects())
print(cards.dialects, holding_of(msgspec.convert(pod, Pod), cards, standard_dialects()).charges)
"""
    printed = run(folder, "-c", script)
    assert printed == "frozenset({'acme'}) {'n1/1': Charge(cores=30, mib=4608, slots=0, shares=1)}\n"


def test_the_page_s_dialect_keeps_a_pod_s_priority_and_offers_no_card_that_is_cut_into_instances(folder: Path) -> None:
    script = """
import msgspec
from aliquot.dialects import standard_dialects
from aliquot.model import Gpu, NodeGpus, Pod
acme = standard_dialects()["acme"]
pod = dict(acme.sample_pod())
pod["spec"] |= {"priority": 7}
whole, cut_up = Gpu("GPU-0", 0, 0, "A100", 40960), Gpu("GPU-1", 1, 1, "A100", 40960)
instance = Gpu("MIG-0", 2, 1, "A100", 4864, parent="GPU-1", profile="1g.5gb")
ids = acme.device_ids(acme.resource, NodeGpus("n1", (whole, cut_up, instance), 1))
print(acme.demand(msgspec.convert(pod, Pod)).priority, {uuid for _, uuid in ids})
"""
    assert run(folder, "-c", script) == "7 {'GPU-0'}\n"
