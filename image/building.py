"""The whole way from names of packages to one archive."""

import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import aliquot
from image import base, bytecode, wheels
from image.archive import Image
from image.errors import ImageError
from image.flavours import FLAVOURS, GPU_MANAGER_LOGS, INSTALL, SERVER_ONLY
from image.tree import TIME, Tree

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """This machine's, in the words of Debian and of OCI: an image is made for the machine that makes it."""
    found = _ARCHITECTURES.get(platform.machine())
    if found is None:
        raise ImageError(f"images are made for {' and '.join(_ARCHITECTURES)} only, not for {platform.machine()}")
    return found


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "aliquot" / "image"


def created(project: Path) -> int:
    """SOURCE_DATE_EPOCH, else the time of the last commit, else a constant: never now."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    asked = ["git", "-C", str(project), "log", "-1", "--format=%ct"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        answer = ""
    return int(answer or TIME)


def images(
    packages: Iterable[Path],
    requirements: Callable[[str], Iterable[Path]],
    own: Path,
    *,
    registry: str,
    moment: int,
    compiled: Callable[[Sequence[Tree], str], None] = bytecode.add,
    progress: Callable[[str], None],
) -> list[Image]:
    """All flavours; `requirements` gives the wheels for a version of Python, `own` is Aliquot's wheel."""
    debian = base.of(packages)
    python = base.python_version(debian)
    progress(f"the image's Python is {python}; getting its wheels")
    needed, server, ours = Tree(), Tree(), Tree()
    found = list(requirements(python))
    for_server = [wheel for wheel in found if wheel.name.partition("-")[0] in SERVER_ONLY]
    wheels.unpack([wheel for wheel in found if wheel not in for_server], needed, python)
    wheels.unpack(for_server, server, python)
    wheels.unpack([own], ours, python)
    programs = wheels.add_programs(own, ours)
    ours.file("usr/bin/install.sh", INSTALL, 0o755)
    ours.folder(GPU_MANAGER_LOGS)
    trees = (debian, needed, server, ours)
    progress("compiling Python's files")
    compiled(trees, python)
    progress("packing the layers")
    layers = {tree: tree.layer() for tree in trees}
    held = [flavour for flavour in FLAVOURS if flavour.program in programs]
    if left_out := [flavour.program for flavour in FLAVOURS if flavour not in held]:
        raise ImageError(f"the wheel has no {', '.join(left_out)}")
    return [
        Image(
            flavour,
            registry,
            aliquot.__version__,
            architecture(),
            moment,
            [layer for tree, layer in layers.items() if tree is not server or not flavour.is_agent],
        )
        for flavour in held
    ]
