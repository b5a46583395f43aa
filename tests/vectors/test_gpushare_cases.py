"""What the original gpushare was seen to do, or should have done, case by case, on the cluster state itself."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed, NodeLost, NodeSeen, PodForgotten, PodSeen
from aliquot.dialects.unhealthy import unhealthy_cards, without
from aliquot.errors import BadDemand, NoRoom
from aliquot.model import Charge, NodeGpus, Pod
from tests.factories import make_cards, make_node, make_pod

pytestmark = pytest.mark.vectors

CARD = 16276


def books_with(*frees: int, unhealthy: str = "") -> ClusterState:
    """A node n1 that counts in MiB, with so much free on each card."""
    cluster = ClusterState()
    cards = make_cards(mib=[CARD] * len(frees), unit_mib=1)
    see(cluster, without(cards, unhealthy_cards(unhealthy)))
    for index, free in enumerate(frees):
        if free < CARD:
            cluster.apply(PodSeen(bound(CARD - free, index)))
    return cluster


def see(cluster: ClusterState, cards: NodeGpus) -> None:
    cluster.apply(NodeSeen(make_node(cards.node, cards)))


def bound(mib: int, index: int, **fields: Any) -> Pod:
    annotations = {"ALIYUN_COM_GPU_MEM_IDX": str(index), "ALIYUN_COM_GPU_MEM_POD": str(mib)}
    return make_pod(gpu_mem=mib, node="n1", metadata={"annotations": annotations}, **fields)


def place(cluster: ClusterState, mib: int, node: str = "n1") -> int:
    """Claim a part as bind does; the card's index."""
    demand = cluster.demand_of(make_pod(gpu_mem=mib))
    assert demand is not None
    judgement = cluster.judge(demand)
    placement = judgement.placement(node)
    if placement is None:
        raise NoRoom(str(judgement.refusal(node)))
    cluster.apply(Claimed(demand.request, placement))
    (part,) = placement.slices()
    return part.index


def used(cluster: ClusterState, node: str = "n1") -> dict[str, int]:
    return {uuid: charge.mib for uuid, charge in cluster.ledger.used(node).items()}


def test_a_bind_of_nothing_is_refused() -> None:
    with pytest.raises(BadDemand, match="asks for more than 0"):
        place(books_with(CARD), 0)


def test_of_four_binds_of_10_on_two_cards_of_15_two_succeed() -> None:
    cluster = ClusterState()
    see(cluster, make_cards(mib=(15, 15), unit_mib=1))
    assert [place(cluster, 10) for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(NoRoom):
            place(cluster, 10)


def test_the_best_fitting_card_is_taken_in_the_documented_sequence() -> None:
    cluster = books_with(12207, 8138, 4069, CARD)
    assert [place(cluster, mib) for mib in (8138, 16276, 4069, 1)] == [1, 3, 2, 0]


def test_two_halves_are_no_whole_and_one_whole_is() -> None:
    with pytest.raises(NoRoom):
        place(books_with(4069, 4069), 8138)
    assert place(books_with(8138), 8138) == 0


@pytest.mark.parametrize(
    ("unhealthy", "index"),
    [
        pytest.param("0", None, id="the only card with room is unhealthy"),
        pytest.param("1,2", 0, id="others are"),
        pytest.param("", 0, id="an empty value takes no card away"),
        pytest.param("x", 0, id="nor does a word"),
        pytest.param(" ,0x0,-0,\u0660,", 0, id="nor what only looks like a number"),
        pytest.param("1, 0 ", None, id="spaces around an index are forgiven"),
    ],
)
def test_unhealthy_cards_take_nothing_new(unhealthy: str, index: int | None) -> None:
    cluster = books_with(CARD, 0, 0, unhealthy=unhealthy)
    if index is None:
        with pytest.raises(NoRoom):
            place(cluster, 100)
    else:
        assert place(cluster, 100) == index


RUNNING: dict[str, Any] = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
ENDED: dict[str, Any] = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": {"terminated": {}}}]}
STOPPING: dict[str, Any] = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}


@pytest.mark.parametrize(
    ("deleted", "status", "held"),
    [
        pytest.param(False, RUNNING, 100, id="runs"),
        pytest.param(True, RUNNING, 100, id="is asked to end, and still runs"),
        pytest.param(False, STOPPING, 100, id="the phase says ended, a container still runs"),
        pytest.param(False, ENDED, 0, id="has ended"),
        pytest.param(True, ENDED, 0, id="has ended and is being deleted"),
    ],
)
def test_memory_comes_back_when_the_containers_have_ended(deleted: bool, status: dict[str, Any], held: int) -> None:
    cluster = books_with(CARD)
    pod = bound(100, 0, status=RUNNING)
    cluster.apply(PodSeen(pod))
    if deleted:
        pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    cluster.apply(PodSeen(replace(pod, status=make_pod(status=status).status)))
    assert sum(used(cluster).values()) == held


def test_memory_comes_back_when_the_pod_is_gone() -> None:
    cluster = books_with(CARD)
    pod = bound(100, 0, status=RUNNING)
    cluster.apply(PodSeen(pod))
    cluster.apply(PodForgotten(pod.metadata.uid))
    assert used(cluster) == {}


def test_a_card_used_beyond_its_size_has_nothing_free() -> None:
    cluster = books_with(CARD)
    for mib in (20000, CARD):
        cluster.apply(PodSeen(bound(mib, 0)))
    assert cluster.ledger.free("n1", "GPU-n1-0") == Charge()
    with pytest.raises(NoRoom):
        place(cluster, 1)


@pytest.mark.parametrize(
    ("mib", "fits"),
    [
        pytest.param((CARD, CARD), (8000, CARD), id="as before"),
        pytest.param((CARD,), (8000,), id="the node loses a card"),
        pytest.param((4000, 4000), (4000, 4000), id="its cards are smaller"),
        pytest.param((), (), id="it loses all"),
    ],
)
def test_the_node_is_followed(mib: Sequence[int], fits: Sequence[int]) -> None:
    cluster = ClusterState()
    see(cluster, make_cards(mib=(CARD, CARD), unit_mib=1))
    see(cluster, make_cards(mib=mib, unit_mib=1))
    for size in fits:
        place(cluster, size)
    with pytest.raises(NoRoom):
        place(cluster, CARD)


def test_a_node_that_is_gone_takes_nobody() -> None:
    cluster = books_with(CARD)
    cluster.apply(NodeLost("n1"))
    with pytest.raises(NoRoom, match="UNKNOWN_NODE"):
        place(cluster, 1)


def test_a_pod_on_a_missing_node_is_skipped_until_the_node_comes() -> None:
    cluster = ClusterState()
    pod = bound(100, 0)
    cluster.apply(PodSeen(pod))
    assert used(cluster) == {}
    see(cluster, make_cards(mib=(CARD,), unit_mib=1))
    cluster.apply(PodSeen(pod))
    assert used(cluster) == {"GPU-n1-0": 100}
