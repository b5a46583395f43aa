"""What kubectl-inspect-gpushare was seen to print."""

from typing import Any

import msgspec
import pytest

from aliquot.dialects.gpushare import IDX
from aliquot.dialects.gpushare_records import ALLOCATION
from aliquot.kubectl.inspect_gpushare.text import details, summary
from aliquot.kubectl.inspect_gpushare.usage import InspectedNode, NodeUse, usage
from aliquot.model import Pod
from tests.factories import make_pod

pytestmark = pytest.mark.vectors

IN_CLUSTER = "Allocated/Total GPU Memory In Cluster:"


def node(name: str, address: str, **allocatable: int) -> InspectedNode:
    amounts = {f"aliyun.com/{key.replace('_', '-')}": str(value) for key, value in allocatable.items()}
    addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]
    shown = addresses if address else addresses[:1]
    return msgspec.convert(
        {"metadata": {"name": name}, "status": {"allocatable": amounts, "addresses": shown}}, InspectedNode
    )


def pod(name: str, units: int, node: str, *, idx: str = "", phase: str = "Running", **fields: Any) -> Pod:
    annotations = {IDX: idx} if idx else {}
    annotations |= fields.pop("annotations", {})
    return make_pod(name, units, node=node, metadata={"annotations": annotations}, status={"phase": phase}, **fields)


NODES = [
    node("gpu-node-bb", "10.0.0.12", gpu_mem=60, gpu_count=4),
    node("gpu-node-a", "10.0.0.11", gpu_mem=30, gpu_count=2),
    node("cpu-node", "10.0.0.13"),
]
PODS = [
    pod("trainer-0", 6, "gpu-node-a", idx="0"),
    pod("trainer-1", 9, "gpu-node-a", idx="0"),
    pod("infer-7d9", 4, "gpu-node-a", idx="1", namespace="ml"),
    pod("done", 5, "gpu-node-a", idx="0", phase="Succeeded"),
    pod("multi", 10, "gpu-node-bb", annotations={ALLOCATION: '{"0":{"0":5,"2":5}}'}, namespace="ml"),
    pod("wait-0", 3, "gpu-node-bb", namespace="ml"),
    pod("elsewhere", 3, "", namespace="ml"),
]
CLUSTER = usage(NODES, PODS)

SUMMARY = f"""\
NAME         IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU2(Allocated/Total)  GPU3(Allocated/Total)  PENDING(Allocated)  GPU Memory(GiB)
gpu-node-a   10.0.0.11  15/15                  4/15                   0/0                    0/0                                        19/30
gpu-node-bb  10.0.0.12  5/15                   0/15                   5/15                   0/15                   3                   13/60
{"-" * 67}
{IN_CLUSTER}
32/90 (35%)  
"""  # noqa: E501, W291

DETAILS = f"""
NAME:       gpu-node-a
IPADDRESS:  10.0.0.11

NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  
trainer-0    default    6                0                
trainer-1    default    9                0                
infer-7d9    ml         0                4                
Allocated :  19 (63%)   
Total :      30         
{"-" * 74}

NAME:       gpu-node-bb
IPADDRESS:  10.0.0.12

NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  GPU2(Allocated)  GPU3(Allocated)  Pending(Allocated)  
multi        ml         5                0                5                0                0                   
wait-0       ml         0                0                0                0                3                   
Allocated :  13 (21%)   
Total :      60         
{"-" * 74}


{IN_CLUSTER}  32/90 (35%)  
"""  # noqa: W291


def test_the_summary_is_the_originals() -> None:
    assert summary(CLUSTER) == SUMMARY


def test_the_number_of_dashes_follows_from_the_first_row() -> None:
    """The original's order is random; this is the sample in which the other node came first."""
    assert summary(CLUSTER[::-1]).splitlines()[3] == "-" * 70


def test_the_details_are_the_originals() -> None:
    assert details(CLUSTER) == DETAILS


def test_a_node_without_gpus() -> None:
    nodes = usage(NODES[2:], PODS)
    assert summary(nodes) == f"NAME  IPADDRESS  GPU Memory()\n\n{IN_CLUSTER}\n0/0 (0%)  \n"
    assert details(nodes) == f"\n\n{IN_CLUSTER}  0/0 (0%)  \n"


def one(*pods: Pod, **allocatable: int) -> list[NodeUse]:
    return usage([node("n", "", **allocatable)], pods)


def test_an_index_beyond_the_cards_counts_in_the_details_only() -> None:
    nodes = one(pod("a", 5, "n", idx="0"), pod("b", 4, "n", idx="7"), gpu_mem=15, gpu_count=1)
    assert "5/15 (33%)  \n" in summary(nodes)
    assert details(nodes).endswith("9/15 (60%)  \n")
    assert "b            default    0                \n" in details(nodes)


def test_memory_without_a_count_has_no_columns_and_no_unit() -> None:
    text = summary(one(gpu_mem=15))
    assert text.splitlines()[:2] == ["NAME  IPADDRESS  GPU Memory()", "n     unknown    0/15"]


def test_a_node_without_pods_has_ten_dashes() -> None:
    assert f"\n{'-' * 10}\n" in details(one(gpu_mem=15, gpu_count=1))


@pytest.mark.parametrize(("memory", "unit"), [(200, "GiB"), (202, "MiB")])
def test_the_unit_follows_from_the_first_nodes_cards(memory: int, unit: str) -> None:
    assert f"GPU Memory({unit})" in summary(one(gpu_mem=memory, gpu_count=2))


@pytest.mark.parametrize("idx", ["", "-1", "one"])
def test_a_pod_without_a_readable_index_is_pending(idx: str) -> None:
    assert "PENDING(Allocated)" in summary(one(pod("a", 5, "n", idx=idx), gpu_mem=15, gpu_count=1))
