"""How pods are counted by shape."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine import ShapeCounts
from aliquot.engine.shape_counts import Shape, shape_of
from aliquot.engine.workload import Workload
from aliquot.model import Constraints, ContainerRequest, Host, Life, Memory, ModelConstraint, Part, Request, Unit
from aliquot.model.bounds import MAX_COUNTED_PODS, MAX_SHAPES

PART = Part(cards=2, cores=30, memory=Memory(1024))
HOST = Host(4000, 8192)


def a_request(*parts: Part, together: bool = False, lives: tuple[Life, ...] = (), host: Host = HOST) -> Request:
    containers = tuple(
        ContainerRequest(f"c{place}", part, lives[place] if lives else Life.MAIN) for place, part in enumerate(parts)
    )
    return Request("", "default/p", "aliquot", containers, together=together, host=host)


def numbered(number: int) -> Request:
    return a_request(PART, host=Host(number))


def test_a_shape_has_everything_that_makes_a_pod_fit_or_not() -> None:
    models = (ModelConstraint(("A100",)),)
    request = replace(a_request(PART), constraints=Constraints(models=models, mig="1g.5gb"))
    assert shape_of(request) == Shape(2, 30, Memory(1024), False, HOST, models, 0, "1g.5gb")
    assert shape_of(a_request(Part(whole=True))) == Shape(1, 0, Memory(), True, HOST)
    assert shape_of(a_request(Part(slots=2))) == Shape(1, 0, Memory(), False, HOST, slots=2)


@pytest.mark.parametrize(
    ("request_", "cards", "cores", "memory"),
    [
        pytest.param(a_request(PART, PART), 4, 30, Memory(1024), id="cards are added"),
        pytest.param(a_request(PART, Part(cores=50)), 3, 50, Memory(), id="the largest part counts"),
        pytest.param(
            a_request(PART, PART, lives=(Life.INIT, Life.MAIN)), 2, 30, Memory(1024), id="the peak over init containers"
        ),
        pytest.param(a_request(PART, PART, together=True), 2, 60, Memory(2048), id="shared cards take the sum"),
        pytest.param(
            a_request(PART, Part(cores=40, memory=Memory(50, Unit.PERCENT)), together=True),
            2,
            40,
            Memory(50, Unit.PERCENT),
            id="or the largest part, if the units differ",
        ),
    ],
)
def test_several_containers_have_one_shape(request_: Request, cards: int, cores: int, memory: Memory) -> None:
    shape = shape_of(request_)
    assert (shape.cards, shape.cores, shape.memory) == (cards, cores, memory)


def test_old_pods_fade() -> None:
    counts = ShapeCounts()
    for number in range(MAX_COUNTED_PODS):
        counts.add(numbered(number % 2))
    for _ in range(2 * MAX_COUNTED_PODS):
        counts.add(numbered(3))
    shares = {shape.host.cpu: count / counts.total for shape, count in counts.shapes.items()}
    assert counts.total <= MAX_COUNTED_PODS
    assert shares[3] > 0.7
    assert 0.01 < shares[0] == pytest.approx(shares[1], abs=0.01)


def test_of_too_many_shapes_the_rarest_is_dropped() -> None:
    counts = ShapeCounts()
    for number in range(MAX_SHAPES):
        for _ in range(1 if number == 7 else 2):
            counts.add(numbered(number))
    counts.add(numbered(MAX_SHAPES))
    known = {shape.host.cpu for shape, _ in counts.record().counts}
    assert known == {*range(MAX_SHAPES + 1)} - {7}


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(0, 60))
def test_counts_are_right_and_go_on_after_they_were_restored(numbers: list[int], cut: int) -> None:
    counts, restored = ShapeCounts(), ShapeCounts()
    for place, number in enumerate(numbers):
        if place == cut:
            restored = ShapeCounts(counts.record())
        counts.add(numbered(number))
        if place >= cut:
            restored.add(numbered(number))
    assert {shape.host.cpu: count for shape, count in counts.record().counts} == Counter(numbers)
    if cut < len(numbers):
        assert restored.record() == counts.record()
        assert (restored.shapes, restored.total, restored.version) == (counts.shapes, counts.total, counts.version)


def test_what_policies_see_changes_seldom_and_lags_by_half_of_the_pods_at_most() -> None:
    counts, versions = ShapeCounts(), set()
    for added in range(1, 4000):
        before, version = counts.shapes, counts.version
        counts.add(numbered(added % 9))
        assert (counts.shapes is before) == (counts.version == version)
        assert added - counts.total <= added / 2
        versions.add(counts.version)
    assert len(versions) < 20


@pytest.mark.parametrize(("count", "expected"), [(3, 3), (200, 0)])
def test_pods_that_accept_many_models_are_expected_to_accept_any(count: int, expected: int) -> None:
    names = tuple(f"A{number}" for number in range(count))
    request = replace(a_request(PART), constraints=Constraints(models=(ModelConstraint(names),)))
    (shape,) = Workload.of({shape_of(request): 1}).shapes
    assert len(shape.models) == expected
