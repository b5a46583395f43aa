"""What becomes scarce, and what that costs."""

import numpy as np
import pytest

from aliquot.engine.card_kinds import NodeKind
from aliquot.engine.forecast.scarcity import Demand
from aliquot.engine.workload import PodShape, Workload
from aliquot.model import Host

EIGHTS = PodShape(8, 1000, 10, cpu=64_000)
SINGLES = PodShape(1, 1000, 90)
KIND = NodeKind("A100", 81920, 8, Host(96_000, 1 << 19))


def price(demand: Demand, rooms: int, idle: float) -> float:
    """Of a room for the first kind of large pods."""
    return float(demand.prices(np.array([rooms] * len(demand.large)), idle)[0])


def test_a_room_costs_nothing_while_there_are_more_than_pods_to_come() -> None:
    demand = Demand(Workload((EIGHTS, SINGLES)), ())
    assert price(demand, rooms=100, idle=170.0) == 0.0  # ten of a hundred pods, 1.7 cards each: ten will come


def test_a_room_costs_all_its_cards_when_more_pods_come_than_there_are_rooms() -> None:
    assert price(Demand(Workload((EIGHTS, SINGLES)), ()), rooms=2, idle=170.0) == 8.0


def test_the_price_rises_as_rooms_are_taken() -> None:
    demand = Demand(Workload((EIGHTS, SINGLES)), ())
    prices = [price(demand, rooms, idle=170.0) for rooms in range(30, 0, -1)]
    assert prices == sorted(prices)
    assert len(set(prices)) > 3


def test_rooms_for_a_pod_that_fills_a_node_are_kept_before_any_was_seen() -> None:
    demand = Demand(Workload((SINGLES,)), (KIND, KIND, NodeKind("T4", 16384, 1, Host(8000, 65536))))
    (fills,) = demand.large
    assert (fills.cards, fills.models) == (8, ("A100",))
    assert fills.cpu < KIND.host.cpu
    assert price(demand, rooms=1, idle=1000.0) > price(demand, rooms=50, idle=1000.0)


@pytest.mark.parametrize(
    ("whole", "cpu", "memory", "rooms"),
    [(8, 64_000, 1000, 1), (16, 64_000, 1000, 1), (16, 128_000, 1000, 2), (7, 64_000, 1000, 0), (8, -5, 1000, 0)],
)
def test_a_room_needs_cards_and_cpu(whole: int, cpu: int, memory: int, rooms: int) -> None:
    demand = Demand(Workload((EIGHTS,)), ())
    assert demand.rooms(np.array([whole]), np.array([cpu]), np.array([memory])).tolist() == [[rooms]]


def test_a_pod_does_not_pay_for_the_room_that_it_takes_itself() -> None:
    demand = Demand(Workload((EIGHTS, PodShape(2, 1000, 1), SINGLES)), ())
    assert demand.covered(8, 64_000, 0).tolist() == [1, 4]
    assert demand.covered(8, 1000, 0).tolist() == [0, 4]
    assert demand.covered(1, 64_000, 0).tolist() == [0, 0]


def test_a_model_that_pods_insist_on_costs_more_as_it_runs_out() -> None:
    demand = Demand(Workload((PodShape(1, 1000, 1, ("A100",)), PodShape(1, 1000, 9))), ())
    models = ("A100", "T4")
    plenty, short = (demand.pressure(models, np.array([idle, 100.0 - idle])).tolist() for idle in (50.0, 10.0))
    assert 0 < plenty[0] < short[0]
    assert plenty[1] == short[1] == 0.0
    assert demand.pressure(models, np.zeros(2)).tolist() == [0.0, 0.0]
    assert not Demand(Workload((SINGLES,)), ()).is_particular


def test_what_counts_is_bounded_however_many_shapes_users_think_of() -> None:
    shapes = (PodShape(2, 1000, 1 + number, (f"A{number}",), cpu=number) for number in range(500))
    demand = Demand(Workload((*shapes, EIGHTS)), (KIND,))
    assert len(demand.large) < 100
    assert max(each.count for each in demand.large) == 500, "the most common ones count"
    assert demand.pressure(["A499", "A0", ""], np.array([1.0, 1.0, 1e5])).tolist() == [pytest.approx(0.6), 0.0, 0.0]
