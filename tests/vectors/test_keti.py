"""KETI GPU-Scheduler: the scores of cards and nodes, and which node they lead to."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from aliquot.engine import Fleet, judge
from aliquot.engine.policies.keti import Size, card_scores, node_score, total
from aliquot.model import Charge, NodeGpus
from tests.factories import make_gpu
from tests.states import pod, shared

pytestmark = pytest.mark.vectors

MI = 1 << 20
GI = 1 << 30
ASKED = Size(cpu_milli=250, memory=6400 * MI, storage=0)
NODE_A = Size(cpu_milli=4000, memory=16 * GI, storage=100 * GI)
NODE_B = Size(cpu_milli=32000, memory=128 * GI, storage=500 * GI)


@pytest.mark.parametrize(
    ("node", "affinity", "avoided", "score"),
    [
        pytest.param(NODE_A, (), False, 69, id="small-node"),
        pytest.param(NODE_B, (), False, 74, id="large-node"),
        pytest.param(NODE_A, (), True, 44, id="small-node-with-a-taint-to-avoid"),
        pytest.param(NODE_B, (), True, 49, id="large-node-with-a-taint-to-avoid"),
        pytest.param(NODE_A, (80, 20), False, 82, id="small-node-with-two-preferred-terms"),
        pytest.param(NODE_B, (80, 20), False, 87, id="large-node-with-two-preferred-terms"),
    ],
)
def test_a_node_is_scored_in_four_stages(node: Size, affinity: Sequence[int], avoided: bool, score: int) -> None:
    assert node_score(ASKED, node, affinity, avoided) == score


@pytest.mark.parametrize(
    ("free", "size", "largest", "pods", "score"),
    [
        (24, 24, 24, 0, 99),
        (24, 24, 80, 0, 76),
        (80, 80, 80, 0, 99),
        (40, 80, 80, 3, 57),
        (12, 24, 24, 5, 50),
        (24, 24, 24, 10, 66),
        (24, 24, 24, 11, 0),
        (0, 24, 24, 0, 33),
        (20, 24, 80, 1, 66),
        (72, 80, 80, 2, 86),
    ],
)
def test_a_card_is_scored_in_three_stages(free: int, size: int, largest: int, pods: int, score: int) -> None:
    scores = card_scores(np.array([free * 1024]), np.array([size * 1024]), largest * 1024, np.array([pods]))
    assert scores.tolist() == [score]


@pytest.mark.parametrize(
    ("cards", "score"), [pytest.param((98, 65), 82, id="two"), pytest.param((98, 65, 33), 65, id="three")]
)
def test_several_cards_count_as_their_mean(cards: Sequence[int], score: int) -> None:
    size, largest = 96 * 1024, 100 * 1024
    left = {98: size, 65: 52 * 1024, 33: 4506}
    gpus = tuple(make_gpu(index, mib=size) for index in range(3))
    used = {
        gpu.uuid: Charge(0, size - mib, shares=1) for gpu, mib in zip(gpus, left.values(), strict=True) if mib < size
    }
    fleet = Fleet()
    fleet.put(NodeGpus("n1", gpus, 1), used)
    fleet.put(NodeGpus("large", (make_gpu(0, "large", mib=largest),), 1), {})
    pods = np.array([used.get(gpu.uuid, Charge()).shares for gpu in gpus])
    free = np.array(list(left.values()))
    assert card_scores(free, np.full(3, size), largest, pods).tolist() == list(left)
    judgement = judge(fleet, pod(replace(shared(0, 1024), cards=len(cards))), "keti", "keti")
    assert judgement.scores(["n1"]) == {"n1": score}


@pytest.mark.parametrize(
    ("node", "card", "weights", "score"),
    [
        pytest.param(69, 76, (0.3, 0.7), 74, id="cards-count-more-small-node"),
        pytest.param(74, 57, (0.3, 0.7), 62, id="cards-count-more-large-node"),
        pytest.param(69, 76, (0.9, 0.1), 70, id="nodes-count-more-small-node"),
        pytest.param(74, 57, (0.9, 0.1), 72, id="nodes-count-more-large-node"),
    ],
)
def test_the_weights_decide_between_node_and_card(
    node: int, card: int, weights: tuple[float, float], score: int
) -> None:
    assert total(node, card, *weights) == score
