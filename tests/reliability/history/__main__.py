"""`python -m tests.reliability.history`"""

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from pathlib import Path

import structlog

from tests.reliability.history import driver
from tests.reliability.history.setups import SETUPS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.history", description=driver.__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--setup", choices=list(SETUPS), default="mixed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tree", type=Path, help="another source tree, whose servers are tried")
    parser.add_argument(
        "--without", action="append", default=[], help="a trouble to leave out, such as 'hide inventory'"
    )
    parser.add_argument("--keep-going", action="store_true", help="go on after a violation")
    parser.add_argument("--folder", type=Path, help="where the servers' logs go; otherwise they are thrown away")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # no server outlives us

    def say(text: str) -> None:
        print(text, flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        work = driver.run(
            folder,
            given.setup,
            given.seed,
            given.minutes * 60,
            tree=given.tree,
            without=given.without,
            keep_going=given.keep_going,
            progress=say,
        )
        figures = asyncio.run(work)
    say(f"set-up {given.setup}, seed {given.seed}\n{figures}")
    return 1 if figures.violations else 0


if __name__ == "__main__":
    sys.exit(main())
