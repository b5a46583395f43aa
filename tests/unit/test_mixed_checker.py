"""The witness of nodes with several dialects finds what is wrong."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.checker import Inside
from tests.mixed_checker import findings

INVENTORY = {"gpus": [{"uuid": f"GPU-{index}", "index": index, "minor": 1 - index, "mib": 15360} for index in range(2)]}
NODES = [{"metadata": {"name": "n", "annotations": {"aliquot.io/inventory": json.dumps(INVENTORY)}}}]


def pod(name: str, limits: Mapping[str, str], *cards: int, phase: str = "Running", **wishes: str) -> dict[str, Any]:
    placement = {"containers": {"main": [{"uuid": f"GPU-{card}"} for card in cards]}}
    annotations = {"aliquot.io/placement": json.dumps(placement)}
    annotations |= {f"aliquot.io/{key}": value for key, value in wishes.items()}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": phase},
    }


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
    assert findings(FULL, NODES, {"a": seen("GPU-0", 1), "e": seen("GPU-1", 0)}) == []


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
        pytest.param(pod("x", {"nvidia.com/gpu": "1"}, 2), "GPU-2, which n does not have", id="a card of nobody"),
    ],
)
def test_one_pod_too_many_is_found(more: dict[str, Any], text: str) -> None:
    assert any(text in found for found in findings([*FULL, more], NODES, {}))


def test_what_has_ended_is_not_sold() -> None:
    assert findings([*FULL, pod("x", {"nvidia.com/gpu": "1"}, 1, phase="Succeeded")], NODES, {}) == []


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
@pytest.mark.parametrize("inside", [seen("GPU-1", 1), seen("GPU-0", 0)], ids=["variable", "device node"])
def test_a_container_on_a_wrong_card_is_found(inside: Inside, phase: str) -> None:
    (found,) = findings([pod("a", {"aliyun.com/gpu-mem": "1"}, 0, phase=phase)], NODES, {"a": inside})
    assert found.startswith("a sees")
