"""The benchmarks of load, of scrapes and of writes measure what they say."""

import numpy as np
import pytest

from bench import scrape, writes
from bench.__main__ import exceeded
from bench.loading.slowdown import NODES, Cluster, Pod, Sampling, workload
from bench.writing.heartbeats import writes_by_second


def test_the_same_seed_gives_the_same_pods() -> None:
    assert workload(3) == workload(3) != workload(4)


def test_pods_use_other_amounts_than_they_asked_for() -> None:
    pods = workload(0)
    idle = [pod for pod in pods if pod.need < 0.1 < pod.share / 100]
    greedy = [pod for pod in pods if pod.need > 2 * pod.share / 100]
    assert len(idle) > len(pods) * 0.3
    assert len(greedy) > len(pods) * 0.15


def pod(number: int, need: float, share: int = 50) -> Pod:
    return Pod(number, at=0.0, share=share, need=need, work=100.0, start=0.0, phase=0.0)


@pytest.mark.parametrize(("needs", "seconds"), [((0.5, 0.5), 100.0), ((1.0, 1.0), 175.0), ((1.0,), 100.0)])
def test_pods_that_want_more_than_a_card_slow_each_other_down(needs: tuple[float, ...], seconds: float) -> None:
    """For three quarters of every minute they want two cards, and get one."""
    cluster = Cluster("binpack", Sampling(), seed=0)
    for number, need in enumerate(needs):
        assert cluster.place(pod(number, need))
    ended = []
    while cluster.running:
        ended += [cluster.now for _ in cluster.step()]
    assert ended == [pytest.approx(seconds, abs=10.0)] * len(needs)


def test_load_avoids_a_card_whose_pods_use_more_than_they_asked_for() -> None:
    cluster = Cluster("load", Sampling(), seed=0)
    for number in range(NODES * 4 - 1):
        assert cluster.place(pod(number, need=1.0, share=10))
    for _ in range(8):
        assert list(cluster.step()) == []
    assert cluster.place(pod(1000, need=0.1))
    taken = {(own.row, own.column) for own in cluster.running.values() if own.pod.number < 1000}
    last = cluster.running[1000]
    assert (last.row, last.column) not in taken


async def test_agents_that_start_together_are_spread_within_a_minute() -> None:
    beats = await writes_by_second(nodes=300, seconds=120)
    assert beats[0] == 300
    assert np.mean(beats[60:]) == pytest.approx(300 / 15, rel=0.1)
    assert max(beats[60:]) < 60


def test_scrapes_and_writes_are_within_their_limits() -> None:
    for benchmark in (scrape, writes):
        assert exceeded("", list(benchmark.run(quick=True))) == []
