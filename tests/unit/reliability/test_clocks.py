"""A server's clocks are moved from outside, whatever source tree it is of."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.reliability.history.clocks import MovedClock

_DAY = 86400.0
_ASK = "import time; print(time.time(), time.monotonic())"


def clocks_of_a_process(clock: MovedClock) -> tuple[float, float]:
    environment = {**os.environ, **clock.environment(None)}
    asked = subprocess.run((sys.executable, "-c", _ASK), env=environment, capture_output=True, text=True, check=True)
    wall, monotonic = map(float, asked.stdout.split())
    return wall, monotonic


def test_the_wall_clock_jumps_and_the_monotonic_one_stands_still(tmp_path: Path) -> None:
    clock = MovedClock(tmp_path / "clock")
    clock.jump(2 * _DAY)
    clock.stand_still(_DAY)
    wall, monotonic = clocks_of_a_process(clock)
    assert wall - time.time() > _DAY
    assert monotonic < time.monotonic() - _DAY / 2
