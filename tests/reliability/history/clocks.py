"""The clocks of one server, as the driver moves them; `clock/sitecustomize.py` is the server's side."""

import struct
from pathlib import Path

_TWO = struct.Struct("<dd")
_HOOK = Path(__file__).with_name("clock")
VARIABLE = "HISTORY_CLOCK"


class MovedClock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._wall = self._monotonic = 0.0
        self._write()

    def environment(self, tree: Path | None) -> dict[str, str]:
        """For a server that follows this clock; with `tree`, one of that source tree."""
        paths = [_HOOK, *([tree / "src"] if tree else [])]
        return {VARIABLE: str(self._path), "PYTHONPATH": ":".join(map(str, paths))}

    def jump(self, seconds: float) -> None:
        """Of the wall clock, as when somebody sets it."""
        self._wall += seconds
        self._write()

    def stand_still(self, seconds: float) -> None:
        """Of the monotonic clock, as when its machine was suspended for so long."""
        self._monotonic -= seconds
        self._write()

    def _write(self) -> None:
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.write(_TWO.pack(self._wall, self._monotonic))
