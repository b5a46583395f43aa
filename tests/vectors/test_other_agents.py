"""Nodes on which gpu-manager chooses the cards: pods are taken exactly where it finds room, on the cards that it takes.

The model below is written from gpu-admission's and gpu-manager's own rules, and shares no code with Aliquot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed, Dropped, NodeSeen
from aliquot.dialects import Demand
from aliquot.model import Node
from tests.factories import NODE, container_manifest, make_cards, make_node, make_pod
from tests.states import BLOCK

pytestmark = pytest.mark.vectors

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
Asked = tuple[int, int]
"""Cores and blocks of a container; (0, 0) asks no GPU."""


@dataclass
class Card:
    index: int
    cores: int
    blocks: int


class GpuManager:
    def __init__(self, cards: int, blocks: int) -> None:
        self.size = blocks // cards
        self.cards = [Card(index, 100, self.size) for index in range(cards)]

    def place(self, containers: Sequence[Asked]) -> list[tuple[int, ...]] | None:
        """The cards of each container that asks for any; None if one finds none, and nothing is taken then."""
        before = [(card.cores, card.blocks) for card in self.cards]
        chosen = []
        for cores, blocks in containers:
            if not cores:
                continue
            cards = self._share(cores, blocks) if cores < 100 else self._whole(cores // 100)
            if cards is None:
                for card, (had_cores, had_blocks) in zip(self.cards, before, strict=True):
                    card.cores, card.blocks = had_cores, had_blocks
                return None
            chosen.append(cards)
        return chosen

    def _ascending(self) -> list[Card]:
        return sorted(self.cards, key=lambda card: (card.cores, card.blocks, card.index))

    def _share(self, cores: int, blocks: int) -> tuple[int, ...] | None:
        for card in self._ascending():
            if card.cores >= cores and card.blocks >= blocks:
                card.cores -= cores
                card.blocks -= blocks
                return (card.index,)
        return None

    def _whole(self, count: int) -> tuple[int, ...] | None:
        free = [card for card in self._ascending() if card.cores == 100][:count]
        if len(free) < count:
            return None
        for card in free:
            card.cores = card.blocks = 0
        return tuple(sorted(card.index for card in free))


def books_with(cards: int, blocks: int, *others: Node) -> ClusterState:
    cluster = ClusterState()
    cluster.apply(NodeSeen(make_node(capacity={CORE: str(cards * 100), MEMORY: str(blocks)})))
    for node in others:
        cluster.apply(NodeSeen(node))
    return cluster


OTHERS = [make_node("cpu"), make_node("ours", make_cards("ours"))]


def demand(cluster: ClusterState, containers: Sequence[Asked], **fields: Any) -> Demand:
    limits = [{CORE: str(cores), MEMORY: str(blocks)} if cores else {} for cores, blocks in containers]
    manifests = [container_manifest(f"c{n}", None, resources={"limits": each}) for n, each in enumerate(limits)]
    asked = cluster.demand_of(make_pod(containers=manifests, **fields))
    assert asked is not None
    return asked


def place(cluster: ClusterState, asked: Demand) -> list[tuple[int, ...]] | None:
    """The same in the cluster state; what is found is taken."""
    placement = cluster.judge(asked).placement(NODE)
    if placement is None:
        return None
    cluster.apply(Claimed(asked.request, placement))
    return [
        tuple(part.index for part in placement.containers[container.name]) for container in asked.request.containers
    ]


@pytest.mark.parametrize(
    ("before", "asked", "cards"),
    [
        pytest.param([], [(80, 17), (100, 0)], [(0,), (1,)], id="in the order of the spec, not the largest first"),
        pytest.param([(75, 1)], [(20, 1), (80, 1), (25, 1)], None, id="greed ends without room for the third"),
        pytest.param([(75, 1)], [(25, 1), (80, 1), (20, 1)], [(0,), (1,), (1,)], id="in another order it has room"),
        pytest.param([], [(50, 1), (40, 1), (60, 1), (50, 1)], None, id="without room on empty cards, too"),
        pytest.param([], [(0, 0), (100, 0), (30, 2)], [(0,), (1,)], id="a container without GPU is left out"),
    ],
)
def test_several_containers(before: list[Asked], asked: list[Asked], cards: list[tuple[int, ...]] | None) -> None:
    cluster, original = books_with(2, 40), GpuManager(2, 40)
    for container in before:
        assert place(cluster, demand(cluster, [container])) == original.place([container])
    assert original.place(asked) == cards
    assert place(cluster, demand(cluster, asked)) == cards


containers = st.one_of(
    st.tuples(st.sampled_from([10, 20, 25, 40, 50, 60, 75, 80, 99]), st.integers(1, 12)),
    st.tuples(st.sampled_from([100, 100, 200]), st.just(0)),
    st.just((0, 0)),
)
pods = st.lists(containers, min_size=1, max_size=4).filter(lambda pod: any(cores for cores, _ in pod))


@given(st.integers(1, 4), st.integers(4, 40), st.lists(pods, min_size=1, max_size=6), st.integers(0, len(OTHERS)))
def test_any_pods_get_the_original_s_cards_or_are_refused_with_it(
    cards: int, blocks: int, sequence: list[list[Asked]], others: int
) -> None:
    cluster, original = books_with(cards, blocks, *OTHERS[:others]), GpuManager(cards, blocks)
    for asked in sequence:
        assert place(cluster, demand(cluster, asked)) == original.place(asked)


@given(st.integers(1, 3), st.lists(pods, min_size=2, max_size=5))
def test_every_answer_about_such_a_node_is_the_same(cards: int, sequence: list[list[Asked]]) -> None:
    cluster, original = books_with(cards, 12 * cards), GpuManager(cards, 12 * cards)
    *before, last = sequence
    for asked in before:
        place(cluster, demand(cluster, asked))
        original.place(asked)
    wanted = demand(cluster, last, priority=1)
    judgement = cluster.judge(wanted)
    assert cluster.explain_node(wanted, NODE).reason is judgement.refusal(NODE)
    preemption = cluster.preempt(wanted)
    if preemption is None:
        assert original.place(last) is GpuManager(cards, 12 * cards).place(last) is None
        return
    for uid in preemption.victims.uids:
        cluster.apply(Dropped(uid, NODE))
    assert place(cluster, wanted) is not None


@pytest.mark.parametrize("policy", ["spread", "binpack", "gpu-manager"])
def test_a_policy_that_the_pod_wishes_is_not_the_agent_s(policy: str) -> None:
    cluster = books_with(2, 40)
    place(cluster, demand(cluster, [(50, 4)]))
    wishing = demand(cluster, [(20, 1)], metadata={"annotations": {"aliquot.io/gpu-policy": policy}})
    assert place(cluster, wishing) == [(0,)]


def test_our_own_agent_s_nodes_keep_the_better_search() -> None:
    cluster = ClusterState()
    cluster.apply(NodeSeen(make_node(NODE, make_cards(mib=(20 * BLOCK, 20 * BLOCK)))))
    place(cluster, demand(cluster, [(75, 1)]))
    assert place(cluster, demand(cluster, [(20, 1), (80, 1), (25, 1)])) is not None


def test_both_kinds_of_nodes_are_scored_by_one_measure() -> None:
    """The tightest is chosen, whoever hands out its cards."""
    ours = make_node("ours", make_cards("ours", mib=(20 * BLOCK, 20 * BLOCK)))
    cluster = books_with(2, 40, ours)
    asked = demand(cluster, [(20, 1), (30, 1)])
    assert cluster.judge(asked).best() == NODE, "equal ones by name"
    place(cluster, demand(cluster, [(10, 1)]))
    assert cluster.judge(asked).best() == NODE
    full = cluster.judge(demand(cluster, [(50, 1)])).placement("ours")
    assert full is not None
    cluster.apply(Claimed(demand(cluster, [(50, 1)]).request, full))
    assert cluster.judge(asked).best() == "ours"
