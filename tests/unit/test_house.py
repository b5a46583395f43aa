"""The house itself: pinned versions, no addresses, and `make` that explains itself."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"[a-z0-9._-]+==[0-9][A-Za-z0-9.+!-]*( ; .+)?", re.IGNORECASE)


def pins(path: Path) -> dict[str, str]:
    lines = [line.strip() for line in path.read_text().splitlines()]
    stated = [line for line in lines if line and not line.startswith("#")]
    return {line.split("==")[0].lower(): line for line in stated}


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: str(path.name))
def test_every_version_in_requirements_is_exact(path: Path) -> None:
    assert [line for line in pins(path).values() if not PIN.fullmatch(line)] == []


@pytest.mark.parametrize("path", [ROOT / "pyproject.toml", *REQUIREMENTS], ids=lambda path: str(path.name))
def test_no_address_is_named_from_which_packages_come(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert not re.search(r"index-url|find-links|trusted-host|\bgit\+|\[\[?tool\.uv", text)


def test_every_dependency_is_pinned_and_the_run_pins_are_among_the_development_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    run, development = (pins(ROOT / "requirements" / name) for name in ("run.txt", "dev.txt"))
    named = {re.split(r"[<>=\[; ]", text)[0].lower() for text in project["project"]["dependencies"]}
    assert named <= set(run)
    assert run.items() <= development.items()
    assert {text.lower() for text in project["dependency-groups"]["dev"]} <= set(development)


def test_only_the_vendor_packages_of_the_agent_name_a_vendor() -> None:
    source = ROOT / "src" / "aliquot"
    paths = [path for package in ("agent", "model") for path in (source / package).rglob("*.py")]
    seam = source / "agent" / "nvidia"
    named = [path for path in paths if re.search(r"nvidia|nvml", path.read_text(), re.IGNORECASE)]
    assert named
    assert [path for path in named if seam not in path.parents] == []


def test_make_lists_its_targets() -> None:
    listed = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    shown = {line.split()[1] for line in listed.splitlines()}
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert shown == set(phony.split())
    assert {"help", "demo", "test", "check", "e2e", "bench", "soak"} <= shown
    assert all(len(line.split()) > 3 for line in listed.splitlines()), "every target says what it does"


def test_the_long_versions_are_not_part_of_make_test() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    testpaths = project["tool"]["pytest"]["ini_options"]["testpaths"]
    assert testpaths == ["tests/unit", "tests/integration", "tests/vectors", "tests/fuzz"]
