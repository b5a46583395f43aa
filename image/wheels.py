"""Python's part of the image: wheels for the image's own Python, unpacked as pip would."""

import configparser
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

from image.errors import ImageError
from image.tree import TIME, Tree

_GLIBC = range(41, 4, -1)
"""Debian 13's glibc is 2.41, and it runs what was made for an older one."""

_SCRIPT = """\
#!/usr/bin/python3
import sys
from {module} import {function}
sys.exit({function}())
"""


def site(python: str) -> str:
    """Where Debian's Python looks for packages that are not Debian's."""
    return f"usr/local/lib/python{python}/dist-packages"


def build(project: Path, folder: Path) -> Path:
    """Our own wheel, always the same bytes for the same sources."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(project)]
    _run(command, "building Aliquot's wheel", {"SOURCE_DATE_EPOCH": str(TIME)})
    (made,) = folder.glob("*.whl")
    return made


def pinned(requirements: Path, python: str) -> list[str]:
    """The exact requirements that hold for this version of Python."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": platform.machine(),
        "sys_platform": "linux",
    }
    lines = [Requirement(line) for line in requirements.read_text().splitlines() if line and line[0] not in "#-"]
    held = [line for line in lines if line.marker is None or line.marker.evaluate(environment)]
    return [f"{line.name}{line.specifier}" for line in held]


def download(requirements: Sequence[str], python: str, folder: Path) -> list[Path]:
    """Exactly these wheels, from the index that pip is configured for, in the order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC] + [f"manylinux2014_{machine}"]
    options = ["--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    options += [f"--platform={tag}" for tag in tags]
    found = {requirement: _held(requirement, folder) for requirement in requirements}
    if missing := [requirement for requirement, wheel in found.items() if wheel is None]:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", f"--dest={folder}", f"--find-links={folder}"]
        _run([*pip, *options, *missing], "pip download")
        found = {requirement: _held(requirement, folder) for requirement in requirements}
    wheels = [wheel for wheel in found.values() if wheel is not None]
    if len(wheels) != len(requirements):
        raise ImageError(f"pip brought no wheel for {', '.join(name for name, wheel in found.items() if not wheel)}")
    return sorted(wheels)


def unpack(wheels: Iterable[Path], tree: Tree, python: str) -> None:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as held:
            for name in held.namelist():
                if not name.endswith("/"):
                    executable = held.getinfo(name).external_attr >> 16 & 0o111
                    tree.file(f"{site(python)}/{_place(name)}", held.read(name), 0o755 if executable else 0o644)


def add_programs(wheel: Path, tree: Tree) -> list[str]:
    """The wheel's own commands, on PATH and where the originals' manifests look for them; returns their names."""
    with zipfile.ZipFile(wheel) as held:
        (declared,) = [name for name in held.namelist() if name.endswith(".dist-info/entry_points.txt")]
        parser = configparser.ConfigParser(delimiters=("=",))
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(held.read(declared).decode())
    programs = dict(parser["console_scripts"]) if "console_scripts" in parser else {}
    for name, reference in programs.items():
        module, _, function = reference.partition(":")
        tree.file(f"usr/local/bin/{name}", _SCRIPT.format(module=module.strip(), function=function.strip()), 0o755)
        tree.link(f"usr/bin/{name}", f"../local/bin/{name}")
    return sorted(programs)


def _held(requirement: str, folder: Path) -> Path | None:
    name, _, version = requirement.partition("==")
    wanted = name.lower().replace("-", "_").replace(".", "_")
    for wheel in sorted(folder.glob("*.whl")):
        found, held, *_ = wheel.name.split("-")
        if (found.lower().replace(".", "_"), held) == (wanted, version):
            return wheel
    return None


def _place(name: str) -> str:
    """Files of a wheel's data folder go beside its packages; scripts of others are not wanted in the image."""
    first, *rest = PurePosixPath(name).parts
    if first.endswith(".data") and rest[0] in ("purelib", "platlib"):
        return "/".join(rest[1:])
    return name


def _run(command: Sequence[str], what: str, more: dict[str, str] | None = None) -> None:
    # the project's constraints are for its own Python, not for the image's
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_CONSTRAINT")} | (more or {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(f"{what} failed:\n{(done.stderr or done.stdout).strip()}")
