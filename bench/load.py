"""How much pods on shared cards slow each other down, on a simulated cluster whose pods use other amounts than they
asked for: policy `load` against binpack and KETI's scoring, with fresh samples, with old ones, and without
(docs/load.md)."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from statistics import mean

import numpy as np

from bench.loading.slowdown import FRESH, Sampling
from bench.loading.slowdown import run as simulate
from bench.measuring import Row, say

PEER = "the same pods under binpack, or KETI's scoring; means over ten seeds"
RATIO = "ratio = ours / peer, of the slowdown beyond 1: below 1 ours is better"
QUICK = True

_SEEDS = range(10)
_SAMPLES = {
    "fresh samples": FRESH,
    "samples without pods": Sampling(by_pod=False),
    "samples 55 s old": Sampling(delay=55.0),
    "no samples after 10 min": Sampling(stops_at=600.0),
}
_PEERS = ("binpack", "keti")


def run(*, quick: bool = False) -> Iterator[Row]:
    seeds = _SEEDS[:1] if quick else _SEEDS
    runs = [("load", sampling) for sampling in _SAMPLES.values()] + [(peer, FRESH) for peer in _PEERS]
    with ProcessPoolExecutor(1 if quick else None) as pool:
        work = {run: [pool.submit(_figures, *run, seed) for seed in seeds] for run in runs}
        found = {run: [each.result() for each in figures] for run, figures in work.items()}
    for peer in _PEERS:
        for name, sampling in _SAMPLES.items():
            for place, figure in enumerate(("mean", "p99")):
                ours, theirs = (
                    [figures[place] for figures in found[own]] for own in (("load", sampling), (peer, FRESH))
                )
                yield _row(f"{name}: load, {peer}: {figure}", ours, theirs)
    for policy, sampling in runs:
        say(f"{policy}, {sampling}: a pod waits {mean(figures[2] for figures in found[policy, sampling]):.1f} s")


def _figures(policy: str, sampling: Sampling, seed: int) -> tuple[float, float, float]:
    result = simulate(policy, seed, sampling)
    return float(result.slowdowns.mean()), float(np.percentile(result.slowdowns, 99)), float(result.waits.mean())


def _row(case: str, ours: list[float], peer: list[float]) -> Row:
    """Of every seed's ratio the least and the most. Load is to be no worse than its peer in any case."""
    ratios = [(mine - 1) / (theirs - 1) for mine, theirs in zip(ours, peer, strict=True)]
    beyond = (mean(ours) - 1) / (mean(peer) - 1)
    is_limit = "binpack" in case
    return Row(case, mean(ours), mean(peer), beyond, "times", (min(ratios), max(ratios)), is_limit)
