"""What holds for every policy on any Fleet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine.all_nodes.plan import Plan, plan
from aliquot.engine.all_nodes.policy_chain import CardChoice
from aliquot.engine.all_nodes.question import Question
from aliquot.engine.all_nodes.room import Room, wanted
from aliquot.engine.block import Block
from aliquot.engine.policies import GPU_POLICIES, NODE_POLICIES
from aliquot.engine.policies.fgd import fragments
from aliquot.engine.view import PolicyOutcome, PolicySettings
from aliquot.engine.workload import PodShape, Workload
from aliquot.model import (
    Charge,
    Constraints,
    ContainerRequest,
    Gpu,
    Life,
    Link,
    Memory,
    Mode,
    NodeGpus,
    Part,
    Request,
    Unit,
)
from aliquot.model.constraints import ModelConstraint
from tests.factories import make_gpu, make_uid
from tests.states import node_state, pod, shared
from tests.unit.engine.policies.views import fleet_of, order, view_of

NOW = 1000.0
LOADS = st.tuples(
    st.one_of(st.floats(0, 1), st.sampled_from((float("nan"), float("inf"), -1.0, 7.0))),
    st.sampled_from((NOW, NOW - 59, NOW - 61, NOW + 5, float("nan"))),
)


@st.composite
def gpus(draw: st.DrawFn, node: str) -> tuple[Gpu, ...]:
    count = draw(st.integers(0, 5))
    return tuple(
        make_gpu(
            row,
            node,
            mib=draw(st.sampled_from((0, 1, 1000, 15360, 81920))),
            model=draw(st.sampled_from(("Tesla T4", "NVIDIA A100-SXM4-80GB"))),
            numa=draw(st.sampled_from((None, 0, 1))),
            healthy=draw(st.integers(0, 5)) > 0,
            slots=draw(st.sampled_from((0, 4))),
            mode=draw(st.sampled_from((Mode.ANY, Mode.ANY, Mode.MPS, Mode.EXCLUSIVE))),
            links=tuple(Link(make_gpu(other, node).uuid, draw(st.sampled_from((10, 150)))) for other in range(row)),
        )
        for row in range(count)
    )


@st.composite
def fleets(draw: st.DrawFn) -> Block:
    fleet = Block(8)
    for number in range(draw(st.integers(0, 4))):
        node = f"n{number}"
        cards = NodeGpus(node, draw(gpus(node)), draw(st.sampled_from((1, 1024))))
        charges = st.builds(Charge, st.integers(0, 120), st.integers(0, 90000), st.just(0), st.integers(0, 3))
        fleet.put(cards, {gpu.uuid: draw(charges) for gpu in cards.gpus if draw(st.booleans())})
        fleet.set_load(node, {gpu.uuid: draw(LOADS) for gpu in cards.gpus if draw(st.booleans())})
    if draw(st.booleans()):
        fleet.remove("n0")
    return fleet


PARTS = st.one_of(
    st.builds(Part, st.integers(1, 3), whole=st.just(True)),
    st.builds(
        Part,
        cards=st.integers(1, 3),
        cores=st.sampled_from((0, 10, 60, 100)),
        memory=st.builds(
            Memory, st.sampled_from((0, 1, 20, 900)), st.sampled_from((Unit.MIB, Unit.NODE, Unit.PERCENT))
        ),
    ),
    st.builds(Part, memory=st.just(Memory(1, Unit.SLOT)), slots=st.just(1)),
)
WISHES = st.sampled_from((Constraints(), Constraints(models=(ModelConstraint(("A100",)),))))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    parts = draw(st.lists(st.tuples(PARTS, st.sampled_from(Life)), min_size=1, max_size=3))
    containers = tuple(ContainerRequest(f"c{place}", part, life) for place, (part, life) in enumerate(parts))
    return Request(make_uid(), "default/p", "aliquot", containers, constraints=draw(WISHES))


def question(fleet: Block, request: Request, policy: str | None) -> Question:
    choice = CardChoice((GPU_POLICIES[policy],)) if policy else None
    everywhere = np.ones(fleet.width, np.bool_)
    settings = PolicySettings(now=NOW)
    return Question(fleet, request, Room.now(fleet), wanted(fleet, request), everywhere, choice, settings)


@given(fleets(), requests())
def test_every_rank_and_every_score_is_a_finite_number(fleet: Block, request: Request) -> None:
    for name, policy in GPU_POLICIES.items():
        planned = plan(question(fleet, request, name))
        for view in planned.views:
            ranks = np.broadcast_to(policy.rank(view), fleet.has.shape)
            assert np.isfinite(ranks).all(), name
        check_scores(fleet, request, planned)


def check_scores(fleet: Block, request: Request, planned: Plan) -> None:
    outcome = PolicyOutcome(
        fleet, request, PolicySettings(now=NOW), planned.fits, planned.views, planned.lives, lambda: planned.rows
    )
    for name, node_policy in NODE_POLICIES.items():
        scores = node_policy.score(outcome)
        assert scores.shape == (fleet.width,), name
        assert np.isfinite(scores[planned.fits]).all(), name


@given(fleets(), requests())
def test_where_a_pod_would_go_is_the_same_asked_for_one_node_and_for_all(fleet: Block, request: Request) -> None:
    for name in GPU_POLICIES:
        planned = plan(question(fleet, request, name))
        for column in np.flatnonzero(planned.fits).tolist():
            at_once = [sorted(rows[:, column].tolist()) for rows in planned.rows]
            assert [sorted(rows) for rows in planned.rows_at(column)] == at_once, name


@given(fleets(), requests())
def test_a_policy_never_changes_what_fits(fleet: Block, request: Request) -> None:
    fits = plan(question(fleet, request, None)).fits
    for name in GPU_POLICIES:
        assert np.array_equal(plan(question(fleet, request, name)).fits, fits), name


@given(st.text(), st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True))
def test_the_same_pod_draws_the_same_again_on_any_fleet_that_has_the_node(uid: str, names: list[str]) -> None:
    states = [node_state([1000] * 4, node=name) for name in names]
    here = view_of(fleet_of(*states), pod(shared(1, 1), uid=uid or "u"))
    elsewhere = view_of(fleet_of(node_state([1000], node="another"), *states[::-1]), pod(shared(1, 1), uid=uid or "u"))
    for column in range(len(names)):
        assert order("random", here, column) == order("random", elsewhere, len(names) - column)


@given(st.lists(st.tuples(LOADS, st.floats(0, 2)), min_size=2, max_size=6))
def test_a_hotter_card_is_never_before_a_colder_equal_one(cards: list[tuple[tuple[float, float], float]]) -> None:
    state = node_state([1000] * len(cards))
    fleet = fleet_of(state)
    fleet.set_load("n1", {gpu.uuid: load for gpu, (load, _) in zip(state.cards.gpus, cards, strict=True)})
    fleet.placed_since[: len(cards), 0] = [placed for _, placed in cards]
    ranks = GPU_POLICIES["load"].rank(view_of(fleet, pod(shared(1, 1)), PolicySettings(now=NOW)))[:, 0]
    fresh = [row for row, ((_, at), _) in enumerate(cards) if NOW - at <= 60 and np.isfinite(cards[row][0][0])]
    for hot in fresh:
        for cold in fresh:
            (hot_load, _), hot_placed = cards[hot]
            (cold_load, _), cold_placed = cards[cold]
            if hot_load >= cold_load and hot_placed >= cold_placed:
                assert ranks[hot] >= ranks[cold]


SHAPES = st.builds(
    PodShape, st.integers(0, 4), st.sampled_from((1, 250, 500, 1000)), st.integers(1, 9), st.sampled_from(((), ("T4",)))
)


@given(fleets(), st.lists(SHAPES, min_size=1, max_size=6), st.data())
def test_the_fragmentation_measure_is_the_sum_of_its_definition(
    fleet: Block, shapes: list[PodShape], data: st.DataObject
) -> None:
    idle = np.zeros(fleet.has.shape, np.int64)
    for row, column in zip(*np.nonzero(fleet.has), strict=True):
        idle[row, column] = data.draw(st.sampled_from((0, 249, 250, 600, 1000)))
    expected = []
    for column in range(fleet.width):
        rows = np.nonzero(fleet.has[:, column])[0].tolist()
        shares = [(int(idle[row, column]), fleet.state_at(column).cards.gpus[row].model) for row in rows]
        expected.append(sum(shape.weight * _fragment(shape, shares) for shape in shapes))
    assert fragments(fleet, idle, fleet.host_cpu, Workload(tuple(shapes))).tolist() == expected


def _fragment(shape: PodShape, cards: list[tuple[int, str]]) -> int:
    """What one shape cannot use of a node."""
    suits = [idle for idle, model in cards if idle >= shape.share and (not shape.models or "T4" in model)]
    runs = shape.cards and len(suits) >= shape.cards
    return sum(idle for idle, _ in cards) - (sum(suits) if runs else 0)


@pytest.mark.parametrize("table", [GPU_POLICIES, NODE_POLICIES], ids=["cards", "nodes"])
def test_every_policy_has_the_name_by_which_it_is_found(table: dict[str, object]) -> None:
    assert {name: getattr(policy, "name", "") for name, policy in table.items()} == {name: name for name in table}
