"""Commands and their output, as they stand in a text: `$ kubectl gpu ...`, then what it prints.

`python -m tests.integration.kubectl.golden FILE...` writes the present output into the texts: read the difference.
"""

import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.integration.kubectl.cluster import cluster, facts
from tests.integration.kubectl.command import archived, gpu

GOLDEN = Path(__file__).with_name("golden.txt")
GUIDE = Path(__file__).parents[3] / "docs" / "kubectl.md"
_BLOCK = re.compile(r"(?m)^\$ kubectl gpu (.*)\n((?:(?!\$ |```).*\n)*)")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The arguments and the output of each command."""
    yield from ((found[1], found[2]) for found in _BLOCK.finditer(text))


def shown(arguments: str, archive: str) -> str:
    """Everything that a command prints, and its exit code if it fails."""
    ended = gpu(*shlex.split(arguments, comments=True), "--from", archive)
    failed = f"(exit code {ended.code})\n" if ended.code else ""
    return f"{ended.out}{ended.err}{failed}"


def rewritten(text: str, archive: str) -> str:
    return _BLOCK.sub(lambda found: f"$ kubectl gpu {found[1]}\n{shown(found[1], archive)}", text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        archive = archived(cluster(), Path(folder), facts())
        for path in map(Path, sys.argv[1:]):
            path.write_text(rewritten(path.read_text(), archive))
