"""Clusters and pods as Kubernetes has them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot.dialects import Dialect, standard_dialects
from aliquot.dialects.table import OURS
from aliquot.errors import BadInput
from aliquot.model import Charge, Host, NodeGpus, Pod
from aliquot.model.records import PLACEMENT, write_placement
from aliquot.simulate.objects import Objects, OwnedPod
from aliquot.simulate.policy_names import parsed_policy
from aliquot.simulate.run import run
from aliquot.simulate.yaml_lists import read_yaml
from tests.factories import (
    container_manifest,
    make_cards,
    make_gpu,
    make_node,
    make_placement,
    make_pod,
    node_manifest,
    pod_manifest,
)
from tests.unit.simulate.worlds import one_by_one

OUR_DIALECTS = [standard_dialects()[kind.name] for kind in OURS]
CARDS = make_cards("n1")
LARGE = NodeGpus(
    "n1", tuple(make_gpu(index, "n1", mib=81920, model="NVIDIA A100", slots=10) for index in range(4)), 1024
)


def objects(*pods: Pod | dict[str, Any], keep_bound: bool = False, **node: Any) -> Objects:
    found = Objects(standard_dialects(), keep_bound)
    found.add_node(make_node("n1", CARDS, **node))
    for pod in pods:
        found.add_pod(msgspec.convert(msgspec.to_builtins(pod), OwnedPod))
    return found


def bound(name: str, index: int) -> Pod:
    record = {PLACEMENT: write_placement(make_placement(CARDS, index, main=3072))}
    return make_pod(name, 3, node="n1", metadata={"annotations": record}, status={"phase": "Running"})


def web(name: str = "web", cpu: str = "2", node: str = "") -> Pod:
    container = container_manifest(gpu_mem=None, resources={"requests": {"cpu": cpu, "memory": "1Gi"}})
    return make_pod(name, containers=[container], node=node)


def test_bound_pods_arrive_like_the_others_unless_they_are_kept() -> None:
    waiting = make_pod("waits", 3)
    again, kept = (
        objects(bound("runs", 1), waiting).world(),
        objects(bound("runs", 1), waiting, keep_bound=True).world(),
    )
    assert [pod.name for pod in again.pods] == ["default/runs", "default/waits"]
    assert [pod.name for pod in kept.pods] == ["default/waits"]
    assert again.nodes[0].used == {}
    assert kept.nodes[0].used == {"GPU-n1-1": Charge(0, 3072, shares=1)}


def test_pods_without_gpu_stay_where_they_are() -> None:
    found = objects(web("a", node="n1"), web("b", node="n1"), web("c"))
    world = found.world()
    assert world.pods == []
    assert (world.nodes[0].host.cpu, world.nodes[0].taken.cpu) == (32_000, 4000)
    assert found.left_out == ["pod default/c asks for no GPU and is not bound"]


@pytest.mark.parametrize(("owner", "can_go"), [("DaemonSet", True), ("Node", True), ("ReplicaSet", False), ("", False)])
def test_only_pods_that_go_with_their_node_let_it_go(owner: str, can_go: bool) -> None:
    owners = {"ownerReferences": [{"kind": owner, "name": "o"}]} if owner else {}
    containers = [container_manifest(gpu_mem=None, resources={"requests": {"cpu": "2"}})]
    (node,) = objects(pod_manifest("web", containers=containers, node="n1", metadata=owners)).world().nodes
    assert (node.taken.cpu, node.can_go) == (2000, can_go)


def test_a_cluster_without_cards_is_told_why() -> None:
    cordoned, plain = {"spec": {"unschedulable": True}}, {"allocatable": {"cpu": "8", "nvidia.com/gpu": "4"}}
    found = Objects(standard_dialects())
    found.add_node(make_node("n1", make_cards("n1"), **cordoned))
    with pytest.raises(BadInput, match=r"every node is cordoned \(1\)"):
        found.world()
    found.add_node(make_node("n2", None, **plain))
    with pytest.raises(BadInput, match=r"no node that is not cordoned \(1 are\) publishes cards in any dialect"):
        found.world()
    found = Objects(standard_dialects())
    found.add_node(make_node("n2", None, **plain))
    with pytest.raises(BadInput, match="no node publishes cards in any dialect"):
        found.world()


def test_of_what_a_node_does_not_say_nothing_is_taken() -> None:
    assert objects(web(node="n1")).world().nodes[0].taken == Host(2000, 0)


def test_pods_arrive_when_they_were_created() -> None:
    meta = {"creationTimestamp": "2026-01-31T12:10:00Z"}
    (pod,) = objects(make_pod(metadata=meta, nodeSelector={"zone": "1"})).world().pods
    assert (pod.arrives, pod.selector, pod.kind) == (1769861400.0, {"zone": "1"}, "default")


def test_what_has_ended_is_not_there_and_what_cannot_be_read_is_told() -> None:
    ended = make_pod("ended", 3, status={"phase": "Succeeded"})
    wrong = make_pod("wrong", "many")
    found = objects(ended, wrong, make_pod("good"))
    assert [pod.name for pod in found.pods] == ["default/good"]
    assert [text.partition(":")[0] for text in found.left_out] == ["pod default/wrong"]


def test_a_cordoned_node_is_left_out() -> None:
    found = objects(spec={"unschedulable": True})
    assert (found.nodes, found.left_out) == ([], ["node n1 is cordoned"])


@pytest.mark.parametrize("dialect", OUR_DIALECTS, ids=lambda dialect: dialect.name)
def test_pods_of_every_dialect_are_simulated(dialect: Dialect, tmp_path: Path) -> None:
    node = node_manifest("n1", LARGE)
    node["metadata"]["labels"] = {f"dialect.aliquot.io/{dialect.name}": "true"}
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all([node, {"kind": "List", "items": [dialect.sample_pod()]}]))
    found = Objects(standard_dialects())
    read_yaml(path, found)
    world = found.world()
    assert msgspec.convert(dialect.sample_pod(), Pod).key == world.pods[0].name
    assert run(world, one_by_one(world), parsed_policy("binpack")).failed == ()
