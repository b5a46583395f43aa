"""gpushare: the smallest card that suffices."""

import pytest

from tests.factories import NODE
from tests.states import Cluster, node_state, pod, shared

pytestmark = pytest.mark.vectors


def test_each_pod_gets_the_card_with_the_least_memory_that_suffices() -> None:
    frees = [12207, 8138, 4069, 16276]
    node = Cluster(node_state([16276] * 4, [(100, mib) for mib in frees]), gpu_policy="tightest")
    chosen = [node.put(f"p{mib}", pod(shared(0, mib))) for mib in (8138, 16276, 4069, 1)]
    assert chosen == [(NODE, [(card,)]) for card in (1, 3, 2, 0)]


@pytest.mark.parametrize(
    ("frees", "fits"), [((4069, 4069), False), ((8138, 0), True)], ids=["enough-in-total-only", "enough-on-one-card"]
)
def test_what_is_free_on_two_cards_does_not_add_up(frees: tuple[int, int], fits: bool) -> None:
    node = Cluster(node_state([16276] * 2, [(100, mib) for mib in frees]), gpu_policy="tightest")
    assert (node.put("p", pod(shared(0, 8138))) is not None) is fits


def test_equal_cards_are_taken_by_their_index() -> None:
    node = Cluster(node_state([16276] * 3), gpu_policy="tightest")
    assert node.put("p", pod(shared(0, 1))) == (NODE, [(0,)])
