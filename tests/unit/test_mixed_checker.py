"""The witness of nodes with several dialects finds what is wrong."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.checker import Inside
from tests.mixed_checker import crowded, findings

INVENTORY = {"gpus": [{"uuid": f"GPU-{index}", "index": index, "minor": 1 - index, "mib": 15360} for index in range(2)]}
NODES = [{"metadata": {"name": "n", "annotations": {"aliquot.io/inventory": json.dumps(INVENTORY)}}}]
TEN_PERCENT = {"elastic-gpu/gpu-percent": "10"}
MOST = {"elastic-gpu/gpu-percent": "90"}


def pod(name: str, limits: Mapping[str, str], *cards: int, phase: str = "Running", **wishes: str) -> dict[str, Any]:
    annotations = {f"aliquot.io/{key}": value for key, value in wishes.items()}
    made = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": phase},
    }
    return placed(made, main=cards)


def placed(pod: dict[str, Any], node: str = "n", **containers: tuple[int, ...]) -> dict[str, Any]:
    parts = {name: [{"uuid": f"GPU-{card}"} for card in cards] for name, cards in containers.items()}
    pod["metadata"]["annotations"]["aliquot.io/placement"] = json.dumps({"node": node, "containers": parts})
    return pod


def with_other(beside: str, limits: Mapping[str, str], card: int, other_limits: Mapping[str, str]) -> dict[str, Any]:
    """A pod `x` with another container that is an init container, a sidecar or a main container."""
    made = placed(pod("x", limits), main=(card,), other=(card,))
    other = {"name": "other", "resources": {"limits": other_limits}}
    match beside:
        case "init":
            made["spec"]["initContainers"] = [other]
        case "sidecar":
            made["spec"]["initContainers"] = [{**other, "restartPolicy": "Always"}]
        case "main":
            made["spec"]["containers"].append(other)
    return made


def seen(uuid: str, minor: int) -> Inside:
    return Inside({"NVIDIA_VISIBLE_DEVICES": uuid}, {"/dev/nvidiactl": (195, 255), "/dev/nvidia": (195, minor)})


FULL = [
    pod("a", {"elastic-gpu/gpu-percent": "40"}, 0),
    pod("b", {"tencent.com/vcuda-core": "50", "tencent.com/vcuda-memory": "4"}, 0),
    pod("c", {"aliyun.com/gpu-mem": "7"}, 0),
    pod("d", {"aliquot.io/gpu": "1"}, 0, cores="10", memory="2Mi"),
    pod("e", {"nvidia.com/gpu": "1"}, 1),
]


def test_a_full_node_has_no_findings() -> None:
    inside = {("a", "main"): [seen("GPU-0", 1)], ("e", "main"): [seen("GPU-1", 0)]}
    assert findings(FULL, NODES, inside) == []
    assert crowded(FULL, NODES, {(name, "main") for name in "abcde"}) == []


@pytest.mark.parametrize(
    ("more", "text"),
    [
        pytest.param(
            pod("x", {"elasticgpu.io/gpu-core": "1", "elasticgpu.io/gpu-memory": "0"}, 0), "101 %", id="cores"
        ),
        pytest.param(pod("x", {"aliyun.com/gpu-mem": "1"}, 0), "15362 MiB", id="memory"),
        pytest.param(
            pod("x", {"elasticgpu.io/gpu-core": "0", "elasticgpu.io/gpu-memory": "2k"}, 0), "16338 MiB", id="thousands"
        ),
        pytest.param(pod("x", {"keti.com/mpsgpu": "1"}, 1), "110 %", id="a slot of a whole card"),
        pytest.param(pod("x", {"aliyun.com/gpu-count": "1"}, 1), "200 %", id="a card twice"),
        pytest.param(pod("x", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"}, 1), "15361 MiB", id="hami's memory"),
        pytest.param(
            pod("x", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1", "nvidia.com/gpucores": "7"}, 1),
            "107 %",
            id="hami's cores",
        ),
        pytest.param(
            pod("x", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1", "nvidia.com/gpucores": "100"}, 1),
            "200 %",
            id="all cores are a whole card",
        ),
        pytest.param(
            pod("x", {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "10"}, 1), "16896 MiB", id="percentage"
        ),
        pytest.param(pod("x", {"nvidia.com/gpu": "1"}, 2), "GPU-2, which n does not have", id="a card of nobody"),
    ],
)
def test_one_pod_too_many_is_found(more: dict[str, Any], text: str) -> None:
    assert any(text in found for found in findings([*FULL, more], NODES, {}))


@pytest.mark.parametrize(("beside", "sold"), [("init", 0), ("sidecar", 1), ("main", 1)])
def test_containers_count_together_unless_one_ends_first(beside: str, sold: int) -> None:
    assert len(findings([with_other(beside, MOST, 0, {"elastic-gpu/gpu-percent": "11"})], NODES, {})) == 2 * sold


def test_an_init_container_may_be_the_largest() -> None:
    large = with_other("init", TEN_PERCENT, 0, MOST)
    assert findings([large, pod("y", TEN_PERCENT, 0)], NODES, {}) == []
    found = findings([large, pod("y", {"elastic-gpu/gpu-percent": "11"}, 0)], NODES, {})
    assert "101 %" in found[0]


def test_what_has_ended_is_not_sold() -> None:
    assert findings([*FULL, pod("x", {"nvidia.com/gpu": "1"}, 1, phase="Succeeded")], NODES, {}) == []


def test_a_container_that_lives_on_crowds_the_card_of_the_next() -> None:
    ended = pod("x", {"nvidia.com/gpu": "1"}, 1, phase="Failed")
    following = pod("y", {"nvidia.com/gpu": "1"}, 1)
    both = {("x", "main"), ("y", "main")}
    assert crowded([ended, following], NODES, {("y", "main")}) == []
    assert "200 %" in crowded([ended, following], NODES, both)[0]


def test_another_node_than_that_of_the_placement_is_found() -> None:
    (found,) = findings([placed(pod("a", TEN_PERCENT), node="other", main=(0,))], NODES, {})
    assert found == "a is placed on other and bound to n"


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
@pytest.mark.parametrize("inside", [seen("GPU-1", 1), seen("GPU-0", 0)], ids=["variable", "device node"])
def test_a_container_on_a_wrong_card_is_found(inside: Inside, phase: str) -> None:
    made = [pod("a", {"aliyun.com/gpu-mem": "1"}, 0, phase=phase)]
    (found,) = findings(made, NODES, {("a", "main"): [seen("GPU-0", 1), inside]})
    assert found.startswith("a (main) sees")


def test_a_container_without_a_card_that_sees_one_is_found() -> None:
    made = pod("a", TEN_PERCENT, 0)
    made["spec"]["containers"].append({"name": "none", "resources": {}})
    assert findings([made], NODES, {("a", "none"): [Inside({}, {})]}) == []
    assert len(findings([made], NODES, {("a", "none"): [seen("GPU-0", 1)]})) == 2


def test_a_pod_without_a_placement_that_sees_a_card_is_found() -> None:
    made = pod("a", TEN_PERCENT)
    del made["metadata"]["annotations"]["aliquot.io/placement"]
    assert findings([made], NODES, {("a", "main"): [Inside({}, {})]}) == []
    assert len(findings([made], NODES, {("a", "main"): [seen("GPU-0", 1)]})) == 2
