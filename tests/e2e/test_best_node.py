"""The node that a real kube-scheduler takes is the one that the engine thinks best, whatever its own plugins prefer.
Nodes and pods are objects of a real API server; nothing runs on them."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot.control.decision_log.format import Line
from aliquot.control.state.events import Claimed, Decided
from tests.e2e.test_schedulers import NATIVE_GPUSHARE
from tests.factories import make_cards
from tests.real.objects import asking, gpu_node
from tests.real.scheduler import Scheduling, pointed_at
from tests.real.serving import serving
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e]

POLICIES = Path(__file__).parents[2] / "docs" / "policies.md"
UNHURRIED = {"qps": 5000, "burst": 10000}
"""So that kube-scheduler's own limit is not what takes the time."""


@dataclass(frozen=True)
class Choice:
    """Where a pod went, where the engine would have it when kube-scheduler asked, and on how many nodes it fitted."""

    taken: str
    best: str
    fits: int


def nodes() -> Iterator[dict[str, Any]]:
    """Forty with eight cards each, of two dialects. kube-scheduler would rather avoid every other one."""
    for place in range(40):
        name = f"n{place:02}"
        dialect = "gpushare" if place % 4 < 2 else "aliquot"
        node = gpu_node(name, dialect, make_cards(name, mib=(15360 if place < 20 else 40960,) * 8))
        if place % 2 == 0:
            node["spec"] = {"taints": [{"key": "old", "value": "yes", "effect": "PreferNoSchedule"}]}
        yield node


def pods(count: int) -> Iterator[dict[str, Any]]:
    """Of both dialects, with several policies and sizes. Each prefers one node, which its policy knows nothing of."""
    chance = random.Random(16)
    for place in range(count):
        policy = chance.choice(["", "binpack", "spread", "random", "fgd", "topology,binpack", "tightest"])
        annotations = {"aliquot.io/node-policy": policy} if policy else {}
        limits: dict[str, object] = {"cpu": "100m", "memory": "64Mi"}
        if chance.random() < 0.5:
            limits["aliyun.com/gpu-mem"] = chance.choice([1, 2, 3, 6, 10, 15])
        else:
            limits["aliquot.io/gpu"] = chance.choice([1, 1, 1, 2])
            annotations |= {"aliquot.io/cores": chance.choice(["10", "25", "50"]), "aliquot.io/memory": "20%"}
        preferred = {"matchExpressions": [_is_named(f"n{chance.randrange(40):02}")]}
        affinity = [{"weight": 100, "preference": preferred}]
        yield asking(
            f"p{place}",
            limits,
            annotations=annotations,
            affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": affinity}},
        )


def _is_named(node: str) -> dict[str, Any]:
    return {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}


def choices(log: Path) -> Iterator[Choice]:
    """The choices in a decision log. Of the decisions about a pod, bind's own comes last, and what prioritize, or
    filter where one node was left, decided comes before it."""
    decided: dict[str, list[Decided]] = {}
    for text in log.read_bytes().splitlines():
        match msgspec.json.decode(text, type=Line).event:
            case Decided() as decision:
                decided.setdefault(decision.request.uid, []).append(decision)
            case Claimed(refused="") as claimed:
                asked = decided[claimed.request.uid][-2].verdict
                assert asked.placement is not None
                yield Choice(claimed.placement.node, asked.placement.node, asked.fits)


def scheduled(cluster: Scheduling, log: Path, count: int, weight: int | None) -> list[Choice]:
    """Schedule that many pods with the shipped configuration, or with another weight."""
    config = {**NATIVE_GPUSHARE.config, "clientConnection": UNHURRIED}
    (extender,) = config["extenders"]
    extender["weight"] = weight or extender["weight"]
    cluster.create(*nodes())
    with serving(cluster, decision_log_file=log) as aliquot:
        cluster.create(*pods(count))
        cluster.schedule(pointed_at(config, aliquot.url("native")))
        wait_for(
            "the pods to be bound",
            lambda: len(cluster.bound()) == count,
            seconds=120,
            processes=[cluster.scheduler, aliquot.process],
            every=0.5,
        )
    return list(choices(log))


def test_every_pod_goes_to_the_engine_s_best_node(scheduling: Scheduling, tmp_path: Path) -> None:
    found = scheduled(scheduling, tmp_path / "decisions", 500, weight=None)
    assert len(found) == 500
    assert [choice for choice in found if choice.taken != choice.best] == []
    assert sum(choice.fits > 1 for choice in found) > 450, "there was something to choose"
    assert len({choice.taken for choice in found}) > 20


def test_with_a_small_weight_kube_scheduler_s_own_plugins_choose_too(scheduling: Scheduling, tmp_path: Path) -> None:
    """Which is what makes the test above worth something."""
    found = scheduled(scheduling, tmp_path / "decisions", 50, weight=1)
    assert any(choice.taken != choice.best for choice in found)


@pytest.mark.parametrize("packing", [pytest.param(True, id="packed"), pytest.param(False, id="as-shipped")])
def test_pods_without_gpu_are_packed_by_the_profile_of_the_guide(scheduling: Scheduling, packing: bool) -> None:
    (profile,) = re.findall(r"```yaml\n(profiles:.*?)```", POLICIES.read_text(), re.DOTALL)
    config = NATIVE_GPUSHARE.config | (yaml.safe_load(profile) if packing else {})
    scheduling.create(gpu_node("n1", "gpushare"), gpu_node("n2", "gpushare"))
    scheduling.create(asking("busy", {"cpu": 16, "memory": "128Gi"}, nodeName="n2"))
    with serving(scheduling) as aliquot:
        scheduling.schedule(pointed_at(config, aliquot.url("native")))
        scheduling.create(asking("new", {"cpu": 2, "memory": "16Gi"}))
        assert scheduling.wait_bound("new")["new"] == ("n2" if packing else "n1")
