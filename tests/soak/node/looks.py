"""What containers see, and which of them live: told by themselves and by the kernel.

They write it into a folder of their node. What they print would pass through the container runtime, which is killed.
"""

import re
from collections import defaultdict
from pathlib import Path

from tests.checker import Inside
from tests.e2e.pods import LOOKED, read_look
from tests.mixed_checker import Named
from tests.rig import Node

FOLDER = "/var/lib/looks"
_NAMED = re.compile(rf"{FOLDER}/(?P<pod>[a-z0-9-]+)\.(?P<container>[a-z]+)\.XXXXXX")


def file_of(pod: str, container: str) -> str:
    """Of one start of a container: `mktemp` fills in the end."""
    return f"{FOLDER}/{pod}.{container}.XXXXXX"


class Looks:
    def __init__(self, node: Node) -> None:
        self._folder = node.var_lib / Path(FOLDER).name
        self._read: set[Path] = set()
        self.inside: dict[Named, list[Inside]] = defaultdict(list)
        """What each container saw at each of its starts."""

    def read(self) -> None:
        """Read what is new and whole."""
        for file in set(self._folder.glob("*")) - self._read:
            text = file.read_text()
            if text.endswith(f"{LOOKED}\n"):
                pod, container, _ = file.name.split(".")
                self.inside[pod, container].append(read_look(text))
                self._read.add(file)


def alive(cgroup: str) -> set[Named]:
    """Containers below the cgroups of this name that have processes now. Those that end while this looks are not among
    them: it looks twice."""
    return _with_processes(cgroup) & _with_processes(cgroup)


def _with_processes(cgroup: str) -> set[Named]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            named = _NAMED.search((process / "cmdline").read_text())
            if named and cgroup in (process / "cgroup").read_text():
                found.add((named["pod"], named["container"]))
        except (FileNotFoundError, ProcessLookupError, UnicodeDecodeError):
            continue
    return found
