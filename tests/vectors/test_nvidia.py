"""nvidia-gpu-scheduler: which nodes pass for a model, what they score, and what the end of other pods changes."""

from dataclasses import replace

import pytest

from aliquot.engine.state import NodeState
from aliquot.model import Charge, Constraints, Gpu, ModelConstraint, NodeGpus, Reason, Request
from tests.factories import make_gpu
from tests.states import Cluster, pod, whole

pytestmark = pytest.mark.vectors

T4, A100 = "Tesla T4", "NVIDIA A100-SXM4-80GB"


def node(name: str, *models: str, busy: int = 0, healthy: bool = True) -> NodeState:
    """The first `busy` cards are given away."""
    gpus = tuple(make_gpu(index, name, model=model, healthy=healthy) for index, model in enumerate(models))
    return NodeState(NodeGpus(name, gpus, 1), {gpu.uuid: _all(gpu) for gpu in gpus[:busy]})


def _all(gpu: Gpu) -> Charge:
    return Charge(100, gpu.mib, shares=1)


def wanting(cards: int, *models: str) -> Request:
    constraints = Constraints(models=(ModelConstraint(models),)) if models else Constraints()
    return replace(pod(whole(cards)), constraints=constraints)


def cluster() -> Cluster:
    return Cluster(
        node("t4", T4, T4, T4, busy=1),
        node("t4-full", T4, T4, busy=2),
        node("mixed", A100, T4),
        node("sick", T4, T4, healthy=False),
        node("empty"),
        node_policy="free-count",
    )


NODES = ["t4", "t4-full", "mixed", "sick", "empty", "ghost"]


@pytest.mark.parametrize(
    ("cards", "models", "accepted"),
    [
        pytest.param(1, (), ["t4", "mixed"], id="no-model-named"),
        pytest.param(1, (T4,), ["t4", "mixed"], id="one-of-a-model"),
        pytest.param(2, (T4,), ["t4"], id="two-free-of-a-model"),
        pytest.param(3, (T4,), [], id="one-of-three-is-busy"),
        pytest.param(1, (A100,), ["mixed"], id="the-other-model-of-a-mixed-node"),
        pytest.param(2, (A100,), [], id="fewer-than-needed"),
        pytest.param(1, ("V100",), [], id="a-model-that-nobody-has"),
        pytest.param(1, ("tesla t4",), ["t4", "mixed"], id="in-small-letters"),
        pytest.param(2, ("A100", "T4"), ["t4", "mixed"], id="any-of-a-list"),
    ],
)
def test_a_node_passes_if_it_has_enough_free_cards_of_the_model(
    cards: int, models: tuple[str, ...], accepted: list[str]
) -> None:
    refused = cluster().judge(wanting(cards, *models)).refusals(NODES)
    assert [name for name in NODES if name not in refused] == accepted


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ghost", Reason.UNKNOWN_NODE),
        ("empty", Reason.NO_GPUS),
        ("sick", Reason.NOT_SELLABLE),
        ("t4-full", Reason.NO_CARD_FITS),
    ],
)
def test_a_refused_node_says_why(name: str, reason: Reason) -> None:
    assert cluster().judge(wanting(1, T4)).refusal(name) is reason


def test_a_model_that_a_node_does_not_have_is_named_as_the_reason() -> None:
    assert cluster().judge(wanting(1, "V100")).refusal("t4") is Reason.WRONG_MODEL


@pytest.mark.parametrize(
    ("models", "scores"),
    [
        pytest.param((T4,), {"t4": 2, "mixed": 1}, id="free-cards-of-the-model"),
        pytest.param((A100,), {"mixed": 1}, id="other-models-do-not-count"),
        pytest.param((), {"t4": 0, "mixed": 0}, id="nothing-without-a-model"),
    ],
)
def test_a_node_scores_its_free_cards_of_the_model(models: tuple[str, ...], scores: dict[str, int]) -> None:
    assert cluster().judge(wanting(1, *models)).scores(NODES) == scores


def test_pods_spread_to_the_node_with_most_free_cards() -> None:
    nodes = Cluster(node("a", T4, T4), node("b", T4, T4, T4), node_policy="free-count")
    placed = [nodes.put(f"p{number}", wanting(1, T4)) for number in range(5)]
    assert [where and where[0] for where in placed] == ["b", "a", "b", "a", "b"]


def test_a_node_full_of_victims_takes_the_pod_when_they_have_ended() -> None:
    """The original's filter forgot that, so that it never made room for a model."""
    nodes = Cluster(node("a", T4, T4), node_policy="free-count")
    nodes.put("low-1", wanting(1, T4))
    nodes.put("low-2", wanting(1, T4))
    assert nodes.judge(wanting(1, T4)).refusal("a") is Reason.NO_CARD_FITS
    nodes.remove("low-1")
    assert nodes.judge(wanting(1, T4)).refusal("a") is None
