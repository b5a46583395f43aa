"""How the original elastic-gpu read demands and its own annotations, as its tests had it."""

from typing import Any

import pytest

from aliquot.dialects import Dialects, demand_of, placement_of
from aliquot.dialects.elastic import Elastic
from aliquot.errors import NotPlaced
from aliquot.model import Pod
from tests.factories import container_manifest, make_cards, make_pod

pytestmark = pytest.mark.vectors

ELASTIC = Elastic()
ASSUMED = {"nano-gpu/assume": "true"}


def pod_with(*percents: int, indexes: tuple[int, ...] = (), **keys: str) -> Pod:
    """Containers c0, c1, … of so many percent; 0 is a container without GPU."""
    containers = [
        container_manifest(
            f"c{place}", None, resources={"limits": {"nano-gpu/gpu-percent": str(percent)} if percent else {}}
        )
        for place, percent in enumerate(percents)
    ]
    annotations = keys | {f"nano-gpu/container-c{place}": str(index) for place, index in enumerate(indexes)}
    return make_pod(containers=containers, metadata={"annotations": annotations}, node="n1")


def indexes_of(pod: Pod) -> list[int]:
    demand = demand_of(pod, Dialects({"elastic": ELASTIC}))
    assert demand is not None
    placement = placement_of(pod, demand, make_cards())
    return [part.index for part in placement.slices()]


DEMANDS: list[Any] = [
    pytest.param((100, 100), [100, 100], id="100 and 100"),
    pytest.param((100, 50, 50), [100, 50, 50], id="100, 50 and 50"),
]


@pytest.mark.parametrize(("percents", "demand"), DEMANDS)
def test_limits_are_the_demand_of_each_container(percents: tuple[int, ...], demand: list[int]) -> None:
    cards = make_cards()
    asked = [container.part.on(cards.gpus[0], 1) for container in ELASTIC.demand(pod_with(*percents)).containers]
    assert [charge.cores for charge in asked] == demand
    assert [charge.mib * 100 // cards.gpus[0].mib for charge in asked] == demand


def test_a_pod_without_limits_demands_nothing() -> None:
    assert demand_of(pod_with(0, 0), Dialects({"elastic": ELASTIC})) is None


PLANS: list[Any] = [
    pytest.param((100, 100), (0, 1), id="on two cards"),
    pytest.param((50, 50), (0, 0), id="on one card"),
]


@pytest.mark.parametrize(("percents", "indexes"), PLANS)
def test_annotations_are_the_indexes_of_each_container(percents: tuple[int, ...], indexes: tuple[int, ...]) -> None:
    assert indexes_of(pod_with(*percents, indexes=indexes, **ASSUMED)) == list(indexes)


def test_a_pod_that_is_not_assumed_is_an_error() -> None:
    with pytest.raises(NotPlaced):
        indexes_of(pod_with(50, 50, indexes=(0, 1)))


def test_a_missing_container_annotation_is_index_0() -> None:
    assert indexes_of(pod_with(50, 50, indexes=(1,), **ASSUMED)) == [1, 0]
