"""Annotations that are larger than any: refused where they are read, by their names."""

import pytest

from aliquot.dialects import cards_of, demand_of, holding_of, standard_dialects
from aliquot.dialects.gpushare_records import read_allocation
from aliquot.errors import BadDemand, BadRecord
from aliquot.model.bounds import LARGEST_CONSTRAINT, LARGEST_INVENTORY, LARGEST_RECORD, MAX_CONTAINERS, MAX_NAMES
from tests.factories import make_cards, make_node, make_pod


def test_a_pod_of_more_containers_than_are_read_is_refused_by_the_field() -> None:
    most = [{"name": f"c{number}"} for number in range(MAX_CONTAINERS - 1)]
    asking = {"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "1"}}}
    assert demand_of(make_pod(containers=[*most, asking]), standard_dialects()) is not None
    with pytest.raises(
        BadDemand, match=r"spec\.containers, spec\.initContainers: the pod has 513 containers; at most 512 are allowed"
    ):
        demand_of(make_pod(containers=[asking, *most], initContainers=[{"name": "init"}]), standard_dialects())


LONG, MANY = "x" * (LARGEST_CONSTRAINT + 1), ",".join(map(str, range(MAX_NAMES + 1)))
WISHES = [
    "aliquot.io/model",
    "aliquot.io/uuid",
    "aliquot.io/gpu-policy",
    "nvidia.com/gpu.model",
    "nvidia.com/use-gputype",
    "nvidia.com/nouse-gpuuuid",
    "nvidia.com/vgpu-mode",
    "hami.io/gpu-scheduler-policy",
]


@pytest.mark.parametrize("key", WISHES)
@pytest.mark.parametrize(("text", "why"), [(LONG, "has more than 16384 bytes"), (MANY, "has 257 names")])
def test_a_wish_that_is_too_large_is_refused_by_its_key(key: str, text: str, why: str) -> None:
    pod = make_pod(metadata={"annotations": {key: text}})
    with pytest.raises(BadDemand, match=f"annotation {key} {why}"):
        demand_of(pod, standard_dialects())


RECORDS = {
    "aliquot.io/placement": {"aliyun.com/gpu-mem": "1"},
    "ALIYUN_COM_GPU_MEM_IDX": {"aliyun.com/gpu-mem": "1"},
    "tencent.com/predicate-gpu-idx-0": {"tencent.com/vcuda-core": "50", "tencent.com/vcuda-memory": "1"},
    "hami.io/vgpu-devices-allocated": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"},
    "UUID": {"keti.com/mpsgpu": "1"},
}


@pytest.mark.parametrize("key", RECORDS)
def test_a_record_that_is_too_large_is_refused_by_its_key(key: str) -> None:
    container = {"name": "main", "resources": {"limits": RECORDS[key]}}
    annotations = {key: "0," * (LARGEST_RECORD // 2 + 1)}
    pod = make_pod(node="n1", containers=[container], metadata={"annotations": annotations})
    with pytest.raises(BadRecord, match=f"{key} has more than 65536 bytes"):
        holding_of(pod, make_cards(), standard_dialects())


def test_an_allocation_that_is_too_large_is_none() -> None:
    text = '{"0":{"0":1}}'
    assert read_allocation(text) == {0: {0: 1}}
    assert read_allocation(text + " " * LARGEST_RECORD) == {}


@pytest.mark.parametrize("key", ["hami.io/node-nvidia-register", "hami.io/node-nvidia-score", "hami.io/device-cordon"])
def test_what_hami_tells_of_a_node_is_bounded_as_our_inventory_is(key: str) -> None:
    register = '[{"id":"GPU-1","devmem":1000,"type":"T4","health":true}]'
    annotations = {"hami.io/node-nvidia-register": register} | {key: "x" * (LARGEST_INVENTORY + 1)}
    with pytest.raises(BadRecord, match=f"{key} has more than"):
        cards_of(make_node("n1", metadata={"name": "n1", "annotations": annotations}), standard_dialects())
