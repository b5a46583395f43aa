"""nvidia-gpu-scheduler's rules for pods: what counts as a need, what a model may be, what preemption frees."""

from typing import Any

import pytest

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import NodeSeen
from aliquot.engine import Holder, NodeState, complete
from aliquot.errors import BadDemand
from aliquot.model import Charge, NodeGpus, Pod
from tests.factories import container_manifest, make_gpu, make_node, make_pod

pytestmark = pytest.mark.vectors

MODEL = "nvidia.com/gpu.model"


def cards(count: int) -> NodeGpus:
    return NodeGpus("n1", tuple(make_gpu(index) for index in range(count)), 1024)


def pod(count: int, model: str | None = None, **fields: Any) -> Pod:
    containers = [container_manifest(gpu_mem=None, resources={"limits": {"nvidia.com/gpu": str(count)}})]
    annotations = {} if model is None else {MODEL: model}
    return make_pod(containers=containers, metadata={"annotations": annotations}, **fields)


def test_a_need_of_none_passes_whatever_the_model() -> None:
    assert ClusterState().demand_of(pod(0, "Tesla T4")) is None


@pytest.mark.parametrize("model", ["", "  ", ","])
def test_an_empty_model_is_refused_by_name(model: str) -> None:
    with pytest.raises(BadDemand, match=MODEL):
        ClusterState().demand_of(pod(1, model))


def test_an_init_container_is_not_added_to_the_need() -> None:
    """The original ignores it; ours counts it as max, as kubelet does."""
    init = container_manifest("init", None, resources={"limits": {"nvidia.com/gpu": "2"}})
    cluster = ClusterState()
    cluster.apply(NodeSeen(make_node("n1", cards(2))))
    demand = cluster.demand_of(pod(1, initContainers=[init]))
    assert demand is not None
    assert cluster.judge(demand).refusal("n1") is None


def holder(uid: str, *indexes: int, priority: int = 0) -> Holder:
    held = {make_gpu(index).uuid: Charge(100, make_gpu(index).mib, shares=1) for index in indexes}
    return Holder(uid, f"default/{uid}", priority, held)


@pytest.mark.parametrize(
    ("need", "proposed", "victims"),
    [
        pytest.param(1, ["a"], ["a"], id="what-the-victims-hold-suffices"),
        pytest.param(2, ["a"], ["a", "b"], id="another-pod-of-lower-priority-is-added"),
        pytest.param(3, ["a"], None, id="the-rest-has-a-higher-priority-and-the-node-is-dropped"),
        pytest.param(1, ["a", "cpu-only"], ["a", "cpu-only"], id="a-victim-without-gpu-stays"),
        pytest.param(2, [], ["a", "b"], id="an-empty-proposal"),
    ],
)
def test_victims_free_their_cards_and_a_proposal_is_extended_or_dropped_but_never_shrunk(
    need: int, proposed: list[str], victims: list[str] | None
) -> None:
    """The original ignores what the victims hold, so that preemption for a model never succeeds."""
    holders = [holder("a", 0), holder("b", 1), holder("vip", 2, priority=9)]
    state = NodeState(cards(3), {uuid: charge for each in holders for uuid, charge in each.charges.items()})
    demand = ClusterState().demand_of(pod(need, priority=5))
    assert demand is not None
    assert complete(state, demand.request, proposed, holders) == victims
