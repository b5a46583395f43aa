"""Compiles the image's Python files with the image's own Python.

Otherwise every start on a read-only file system would compile them again. The program is started through its own
loader, so neither root nor a namespace is needed. The result is bound to the sources' content, not to their time.
"""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from image.errors import ImageError
from image.tree import Tree

_FLAGS = ("-B", "-S", "-m", "compileall", "-q", "-f", "--invalidation-mode=unchecked-hash")


def add(trees: Sequence[Tree], python: str) -> None:
    """To each tree what its own sources become; together they must hold a whole Python of this version."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for tree in trees:
            tree.write(root)
        _compile(root, python)
        for tree in trees:
            _take(tree, root, f"cpython-{python.replace('.', '')}")


def _compile(root: Path, python: str) -> None:
    loaders = [*root.glob("usr/lib64/ld-linux-*.so.*"), *root.glob("usr/lib/ld-linux-*.so.*")]
    if not loaders:
        raise ImageError("the packages have no loader of programs (libc6)")
    libraries = ":".join(str(folder) for folder in root.glob("usr/lib/*-linux-gnu"))
    program = [str(loaders[0]), "--library-path", libraries, str(root / f"usr/bin/python{python}")]
    sources = [str(root / f"usr/{part}/python{python}") for part in ("lib", "local/lib")]
    command = [*program, *_FLAGS, "-s", str(root), "-p", "/", *sources]
    environment = {"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "PATH": os.environ.get("PATH", "")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(f"the image's Python cannot compile its files:\n{(done.stdout + done.stderr).strip()}")


def _take(tree: Tree, root: Path, tag: str) -> None:
    for path in [path for path in tree.entries if path.endswith(".py")]:
        source = PurePosixPath(path)
        compiled = source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"
        if (root / compiled).exists():
            tree.file(str(compiled), (root / compiled).read_bytes())
