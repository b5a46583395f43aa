"""`make image` for the tests that run it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aliquot

_TREE = Path(__file__).parents[2]


def name(program: str) -> str:
    """Under which the archive's image of a program is used in a pod."""
    return f"aliquot/{program}:{aliquot.__version__}"


def make(folder: Path, progress: Callable[[str], None]) -> Path:
    """The archive, made now unless $ALIQUOT_IMAGE names one."""
    if ready := os.environ.get("ALIQUOT_IMAGE"):
        return Path(ready)
    archive = folder / "images.tar"
    command = [sys.executable, "-m", "image", "--output", str(archive)]
    with subprocess.Popen(command, cwd=_TREE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as making:
        assert making.stderr is not None
        said = []
        for line in making.stderr:
            said.append(line)
            progress(f"image: {line.rstrip()}")
    assert making.returncode == 0, "".join(said)
    return archive
