"""The default policy is no worse than FGD where no thousands of pods teach it: on small clusters, on large nodes, and
from the first pod on."""

from pathlib import Path
from statistics import mean

import pytest

from aliquot.simulate.csv_lists import read_nodes, read_pods
from aliquot.simulate.orders import shuffled
from aliquot.simulate.policy_names import parsed_policy
from aliquot.simulate.results import RunResult
from aliquot.simulate.run import run
from aliquot.simulate.scenario import World

NODES = "sn,gpu,model,cpu_milli,memory_mib,count"
PODS = "name,num_gpu,gpu_milli,cpu_milli,memory_mib,gpu_spec,count"
CLUSTERS = {
    "ten mixed nodes": (
        ["a,8,A100,96000,786432,6", "t,4,T4,32000,131072,4"],
        [
            "eight,8,1000,64000,8192,,6",
            "eight-few-cores,8,1000,16000,8192,,3",
            "two,2,1000,8000,8192,,11",
            "one,1,1000,4000,8192,,16",
            "one-a,1,1000,2000,8192,A100,5",
            "half,1,500,8000,8192,,11",
            "third,1,333,4000,8192,,11",
            "third-t,1,333,2000,8192,T4,6",
            "quarter,1,250,2000,8192,,14",
            "web,0,0,4000,8192,,17",
        ],
    ),
    "nodes with 16 cards": (
        ["a,16,A100,128000,786432,10"],
        [
            "sixteen,16,1000,64000,65536,,2",
            "eight,8,1000,32000,65536,,2",
            "one,1,1000,4000,8192,,50",
            "half,1,500,2000,8192,,40",
        ],
    ),
    "rooms of eight": (
        ["a,8,A100,96000,786432,15", "t,4,T4,48000,262144,15"],
        [
            "eight,8,1000,64000,400000,,6",
            "four,4,1000,32000,200000,,10",
            "one,1,1000,10000,32768,,75",
            "one-t,1,1000,6000,16384,T4,20",
            "half,1,500,6000,16384,,75",
            "quarter,1,250,4000,8192,,100",
            "web,0,0,8000,16384,,30",
        ],
    ),
    "memory runs out first": (
        ["a,16,A100,192000,524288,8"],
        [
            "one,1,1000,2000,16384,,120",
            "one-large,1,1000,8000,65536,,120",
            "two,2,1000,8000,16384,,25",
            "four,4,1000,16000,262144,,5",
            "tenth,1,100,2000,32768,,40",
        ],
    ),
}


CHANCE = 0.5
"""Percent of the cards, or pods: what a few orders of arrival tell."""


@pytest.mark.parametrize("name", CLUSTERS)
def test_lookahead_is_no_worse_than_fgd(name: str, tmp_path: Path) -> None:
    nodes, pods = CLUSTERS[name]
    (tmp_path / "nodes.csv").write_text("\n".join([NODES, *nodes]))
    (tmp_path / "pods.csv").write_text("\n".join([PODS, *pods]))
    world = World(read_nodes(tmp_path / "nodes.csv"), read_pods(tmp_path / "pods.csv"))
    ours, fgd = (placed(world, policy) for policy in ("lookahead", "fgd"))
    for percent in (100, 130):
        ours_then, fgd_then = (mean(each.at(percent).allocation for each in runs) for runs in (ours, fgd))
        assert ours_then >= fgd_then - CHANCE
    assert mean(each.failed_multi for each in ours) <= mean(each.failed_multi for each in fgd) + CHANCE


def placed(world: World, policy: str) -> list[RunResult]:
    """In several orders. The workload is learnt from the pods that come."""
    orders = [shuffled(world, seed, 130) for seed in range(1, 5)]
    return [run(world, order, parsed_policy(policy), know_workload=False) for order in orders]
