"""A scaled-down openb: pods arrive at a real kube-scheduler, one after the other, and as much is allocated as when
`aliquot simulate` places the same objects. Nothing runs on the nodes."""

import csv
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.dialects import standard_dialects
from aliquot.model import Node, NodeGpus
from aliquot.simulate.objects import Objects, OwnedPod
from aliquot.simulate.orders import by_time
from aliquot.simulate.policy_names import parsed_policy
from aliquot.simulate.run import run
from aliquot.simulate.scenario import World
from tests.e2e.test_best_node import UNHURRIED
from tests.e2e.test_schedulers import NATIVE_GPUSHARE
from tests.factories import make_gpu
from tests.real.objects import asking, gpu_node
from tests.real.scheduler import Scheduling, pointed_at
from tests.real.serving import serving
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e]

OPENB = Path(__file__).parents[3] / "shared" / "data" / "openb"
EVERY = 45
"""Every 45th node, by model: 27 of 1,213."""
ARRIVED = 1.3


def rows(name: str) -> list[dict[str, str]]:
    with (OPENB / name).open() as file:
        return list(csv.DictReader(file))


def nodes() -> Iterator[dict[str, Any]]:
    by_model = sorted(rows("openb_node_list_gpu_node.csv"), key=lambda row: (row["model"], row["sn"]))
    for row in by_model[::EVERY]:
        name = row["sn"]
        gpus = (make_gpu(index, name, mib=81920, model=row["model"]) for index in range(int(row["gpu"])))
        made = gpu_node(name, "aliquot", NodeGpus(name, tuple(gpus), 1024))
        host = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}
        for offered in (made["status"]["capacity"], made["status"]["allocatable"]):
            offered.update(host)
        yield made


def pods(cards: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Pods of the default list with what they ask for, in thousandths of cards, until they have asked for more than
    the cluster has. Pods without GPU never come to Aliquot."""
    asking_gpus = [row for row in rows("openb_pod_list_default.csv") if int(row["num_gpu"])]
    random.Random(45).shuffle(asking_gpus)
    asked = 0
    for number, row in enumerate(asking_gpus):
        count, milli = int(row["num_gpu"]), int(row["gpu_milli"])
        limits = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi", "aliquot.io/gpu": count}
        share = -(-milli // 10)
        annotations = {} if milli == 1000 else {"aliquot.io/memory": f"{share}%"}
        yield asking(f"p{number:03}", limits, annotations=annotations), count * share * 10
        asked += count * share * 10
        if asked > ARRIVED * cards * 1000:
            return


@pytest.mark.skipif(not OPENB.is_dir(), reason="openb is not on this machine")
def test_as_much_is_allocated_as_in_the_simulation(scheduling: Scheduling) -> None:
    cluster = list(nodes())
    cards = world_of(cluster, []).capacity
    arrivals = list(pods(cards))
    world = world_of(cluster, [pod for pod, _ in arrivals])
    expected = run(world, by_time(world, departures=False), parsed_policy("lookahead"))
    scheduling.create(*cluster)
    config = {**NATIVE_GPUSHARE.config, "clientConnection": UNHURRIED}
    with serving(scheduling) as aliquot:
        scheduling.schedule(pointed_at(config, aliquot.url("native")))
        for pod, _ in arrivals:
            scheduling.create(pod)
            wait_decided(scheduling, pod["metadata"]["name"])
    bound = scheduling.bound()
    allocated = sum(asked for pod, asked in arrivals if pod["metadata"]["name"] in bound) / (cards * 10)
    assert len(bound) < len(arrivals), "the cluster is full"
    assert allocated == pytest.approx(100 * expected.allocated / expected.cards, abs=0.3)


def wait_decided(scheduling: Scheduling, name: str) -> None:
    """Wait until kube-scheduler has bound the pod, or found that it fits nowhere."""

    def decided() -> bool:
        conditions = scheduling.pod(name)["status"].get("conditions", [])
        return any(each["type"] == "PodScheduled" for each in conditions)

    wait_for(f"{name} to be decided", decided, seconds=30, every=0.02)


def world_of(cluster: list[dict[str, Any]], arrivals: list[dict[str, Any]]) -> World:
    """What `aliquot simulate` makes of these objects."""
    objects = Objects(standard_dialects())
    for node in cluster:
        objects.add_node(msgspec.convert(node, Node))
    for pod in arrivals:
        objects.add_pod(msgspec.convert(pod, OwnedPod))
    assert not objects.left_out
    return objects.world()
