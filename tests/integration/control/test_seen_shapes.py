"""The pods that the cluster shows are counted by shape, each once, and policies see the counts."""

import msgspec
import pytest

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import NodeSeen, PodForgotten, PodSeen
from aliquot.model import Host, Pod
from tests.factories import container_manifest, make_cards, make_node, make_pod


def counted(cluster: ClusterState) -> dict[tuple[int, int], int]:
    """How many pods were counted, by units of memory and thousandths of a core."""
    return {(shape.memory.amount, shape.host.cpu): count for shape, count in cluster.shapes.counts.shapes.items()}


def a_cluster() -> ClusterState:
    cluster = ClusterState()
    cluster.apply(NodeSeen(make_node("n1", make_cards())))
    return cluster


def test_a_pod_counts_once_from_the_moment_it_waits() -> None:
    cluster, pod = a_cluster(), make_pod("a", 4)
    bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1"))
    for seen in (pod, pod, bound, make_pod("a", 4, node="n1", uid=pod.metadata.uid, status={"phase": "Succeeded"})):
        cluster.apply(PodSeen(seen))
        assert counted(cluster) == {(4, 0): 1}
    cluster.apply(PodForgotten(pod.metadata.uid))
    assert counted(cluster) == {(4, 0): 1}
    assert cluster.shapes.uids == set()


def test_pods_that_a_new_process_finds_count() -> None:
    cluster = a_cluster()
    asking = {"resources": {"limits": {"aliyun.com/gpu-mem": "4", "cpu": "2"}}}
    for pod in (
        make_pod("waits", 4),
        make_pod("runs", 4, node="n1"),
        make_pod("ended", 4, node="n1", status={"phase": "Succeeded"}),
        make_pod("larger", containers=[container_manifest() | asking]),
    ):
        cluster.apply(PodSeen(pod))
    assert counted(cluster) == {(4, 0): 3, (4, 2000): 1}
    assert {shape.host for shape in cluster.shapes.counts.shapes} == {Host(), Host(2000)}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod("plain", None), id="no GPU"),
        pytest.param(make_pod("bad", "many"), id="an unreadable amount"),
        pytest.param(
            make_pod("other", containers=[{"name": "c", "resources": {"limits": {"example.com/nic": 1}}}]),
            id="another extended resource",
        ),
    ],
)
def test_pods_that_ask_for_no_cards_do_not_count(pod: Pod) -> None:
    cluster = a_cluster()
    cluster.apply(PodSeen(pod))
    assert counted(cluster) == {}


def test_policies_see_the_counts() -> None:
    cluster, pod = a_cluster(), make_pod("a", 4)
    cluster.apply(PodSeen(pod))
    demand = cluster.demand_of(pod)
    assert demand is not None
    assert [outcome.settings.seen for outcome in cluster.judge(demand).outcomes] == [cluster.shapes.counts]
