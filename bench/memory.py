"""What the cluster state of 5,000 nodes with eight cards each hold more because of one node: one with as many cards as
any may have, and one whose inventory counts 4,600 cards.

Each case runs alone in a fresh process; memory is what that process holds more than before it began.
"""

import subprocess
import sys
from collections.abc import Iterable

from bench.measuring import Row, in_turns

PEER = "the same cluster state where that node is as the others are"
RATIO = "ratio = ours / peer, so 1 where the odd node costs nothing"

FULL = 5000
QUICK = 50
_TURNS = 3
_CASES = {"largest": "one node has 128 cards", "hostile": "one node's inventory counts 4,600 cards"}


def run(*, quick: bool = False) -> Iterable[Row]:
    nodes = QUICK if quick else FULL
    for case, words in _CASES.items():
        turns = [(_held(case, nodes), _held("plain", nodes)) for _ in range(_TURNS)]
        ours, peer = ([turn[place] for turn in turns] for place in (0, 1))
        yield in_turns(f"{nodes:,} nodes of 8 cards, {words}", ours, peer, "MiB")


def _held(case: str, nodes: int) -> float:
    command = [sys.executable, "-m", "bench.holding.cluster", case, str(nodes)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()[-1])
