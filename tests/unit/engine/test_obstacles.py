"""What is said of one card that cannot take one part."""

from dataclasses import replace
from typing import Any

import pytest

from aliquot.engine.one_node.obstacles import Obstacle, obstacle
from aliquot.engine.state import NodeState
from aliquot.model import Charge, Constraints, Memory, Mode, ModelConstraint, NodeGpus, Part, Reason, Request, Unit
from tests.factories import make_gpu
from tests.states import pod, shared, whole

PART = shared(20, 5000)


def said(
    part: Part = PART,
    used: Charge | None = None,
    dialects: frozenset[str] = frozenset(),
    constraints: Constraints | None = None,
    **gpu: Any,
) -> Obstacle | None:
    card = make_gpu(**gpu)
    cards = NodeGpus("n1", (card,), 1024, dialects)
    request: Request = replace(pod(part), constraints=constraints or Constraints())
    return obstacle(NodeState(cards, {} if used is None else {card.uuid: used}), card, part, request)


def test_a_card_with_room_has_no_obstacle() -> None:
    assert said() is None
    assert said(used=Charge(80, 10360, shares=1)) is None


@pytest.mark.parametrize(
    ("asked", "reason", "text"),
    [
        pytest.param(
            {"dialects": frozenset({"keti", "hami"})},
            Reason.NOT_SERVED,
            "is on a node that serves hami, keti, not aliquot",
            id="dialect",
        ),
        pytest.param(
            {"constraints": Constraints(models=(ModelConstraint(("A100",)),))},
            Reason.WRONG_MODEL,
            "is not a model that the pod asks for",
            id="model",
        ),
        pytest.param(
            {"constraints": Constraints(not_uuids=frozenset({"GPU-n1-0"}))},
            Reason.WRONG_CARD,
            "is not a card that the pod may use: GPU-n1-0",
            id="uuid",
        ),
        pytest.param(
            {"constraints": Constraints(mig="1g.5gb")},
            Reason.WRONG_CARD,
            "is not a MIG instance, but the pod wants 1g.5gb",
            id="no instance",
        ),
        pytest.param(
            {"profile": "2g.10gb"},
            Reason.WRONG_CARD,
            "is a MIG instance 2g.10gb, but the pod wants a card",
            id="an instance",
        ),
        pytest.param({"healthy": False}, Reason.NOT_SELLABLE, "is unhealthy", id="unhealthy"),
        pytest.param({"cordoned": True}, Reason.NOT_SELLABLE, "is cordoned", id="cordoned"),
        pytest.param({"mode": Mode.EXCLUSIVE}, Reason.WRONG_MODE, "is only sold whole", id="exclusive"),
        pytest.param({"mode": Mode.MPS, "slots": 4, "part": whole()}, Reason.WRONG_MODE, "is for MPS only", id="MPS"),
        pytest.param(
            {"part": Part(slots=1, memory=Memory(1, Unit.SLOT))},
            Reason.WRONG_MODE,
            "is not cut into MPS slots",
            id="no slots",
        ),
        pytest.param(
            {"part": shared(0, 20000)},
            Reason.TOO_LARGE,
            "has 15360 MiB left; the pod needs 20000 MiB",
            id="larger than the card",
        ),
        pytest.param(
            {"used": Charge(25, 1000, slots=1), "slots": 4}, Reason.WRONG_MODE, "is shared with MPS now", id="MPS now"
        ),
        pytest.param(
            {"used": Charge(90, 0, shares=1)},
            Reason.NO_CARD_FITS,
            "has 15360 MiB and 10 % of cores left; the pod needs 5000 MiB and 20 %",
            id="cores",
        ),
        pytest.param(
            {"used": Charge(100, 0, shares=1), "part": shared(0, 1)},
            Reason.NO_CARD_FITS,
            "has 0 % of cores left, so it takes no more pods",
            id="cores are sold out",
        ),
    ],
)
def test_an_obstacle_is_named_with_its_numbers(asked: dict[str, Any], reason: Reason, text: str) -> None:
    assert said(**asked) == Obstacle(reason, text)


def test_a_card_that_is_cut_into_instances_is_not_sold_itself() -> None:
    card, instance = make_gpu(0), make_gpu(1, parent="GPU-n1-0", profile="1g.5gb")
    state = NodeState(NodeGpus("n1", (card, instance), 1024), {})
    assert obstacle(state, card, PART, pod(PART)) == Obstacle(Reason.NOT_SELLABLE, "is cut into MIG instances")
    wished = replace(pod(PART), constraints=Constraints(mig="any"))
    assert obstacle(state, instance, PART, wished) is None
