"""A /proc of the host that a test writes."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class FakeProc:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(2, "/", name="kthreadd", started=0)

    def write(self, pid: int, path: str, *, name: str = "python", started: float = 10) -> None:
        """A process in the cgroup of this path, which started so many seconds after boot."""
        own = self.folder / str(pid)
        own.mkdir(exist_ok=True, parents=True)
        (own / "comm").write_text(f"{name}\n")
        fields = ["S", *("1" for _ in range(18)), str(round(started * _TICKS)), "0", "0"]
        (own / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
        (own / "cgroup").write_text(f"0::{path}\n")
