"""What the columns of a block hold."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from aliquot.engine.block import Block
from aliquot.model import Charge, Mode, NodeGpus
from tests.factories import make_cards, make_gpu
from tests.states import groups, node_state


def test_cards_that_are_not_for_sale_are_there_but_open_to_nobody() -> None:
    gpus = (
        make_gpu(0),
        make_gpu(1, healthy=False),
        make_gpu(2, cordoned=True),
        make_gpu(3, parent="GPU-n1-4", profile="1g.5gb", mib=5000),
        make_gpu(4),
    )
    fleet = Block(8)
    fleet.put(NodeGpus("n1", gpus, 1024), {})
    assert fleet.has[:, 0].tolist() == [True] * 5 + [False] * 3
    assert fleet.sellable[:5, 0].tolist() == [True, False, False, True, False]
    assert fleet.open_shared[:5, 0].tolist() == fleet.open_whole[:5, 0].tolist() == fleet.sellable[:5, 0].tolist()
    assert fleet.node_mib[0] == 15360 + 5000
    assert [fleet.profiles[number] for number in fleet.profile_id[:5, 0]] == ["", "", "", "1g.5gb", ""]


@pytest.mark.parametrize(
    ("mode", "used", "opens"),
    [
        pytest.param(Mode.ANY, Charge(), "shared whole slots", id="the first pod on an empty card decides"),
        pytest.param(Mode.ANY, Charge(10, 10, shares=1), "shared", id="shared now"),
        pytest.param(Mode.ANY, Charge(25, 10, slots=1), "slots", id="by MPS now"),
        pytest.param(Mode.ANY, Charge(100, 10, shares=1), "", id="no cores left"),
        pytest.param(Mode.EXCLUSIVE, Charge(), "whole", id="exclusive"),
        pytest.param(Mode.EXCLUSIVE, Charge(1, 1, shares=1), "", id="exclusive and taken"),
        pytest.param(Mode.TIME_SLICED, Charge(), "shared whole", id="time-sliced"),
        pytest.param(Mode.MPS, Charge(), "slots", id="MPS"),
    ],
)
def test_a_card_is_open_to_the_kinds_of_parts_that_its_mode_and_neighbours_allow(
    mode: Mode, used: Charge, opens: str
) -> None:
    fleet = Block(8)
    fleet.put(NodeGpus("n1", (make_gpu(slots=4, mode=mode),), 1024), {"GPU-n1-0": used})
    masks = {"shared": fleet.open_shared, "whole": fleet.open_whole, "slots": fleet.open_slots}
    assert " ".join(kind for kind, mask in masks.items() if mask[0, 0]) == opens


def test_nodes_that_are_wired_alike_share_one_wiring() -> None:
    pairs = groups((150, [[0, 1]]))
    fleet = Block(8)
    for name in ("a", "b"):
        state = node_state([100, 100], node=name, pairs=pairs)
        fleet.put(state.cards, {})
    fleet.put(make_cards("c"), {})
    assert fleet.wiring_id[0] == fleet.wiring_id[1] != fleet.wiring_id[2]
    assert fleet.wiring(0).scores == ((0, 150), (150, 0))
    assert not fleet.wiring(2).known


def test_models_are_numbered_and_dialects_masked_also_for_nodes_that_come_later() -> None:
    fleet = Block(8)
    fleet.put(make_cards("a"), {})
    assert fleet.serves("keti").tolist() == [True]
    fleet.put(replace(make_cards("b"), dialects=frozenset({"gpushare"})), {})
    for number in range(100):
        fleet.put(replace(make_cards(f"n{number}"), dialects=frozenset({"keti"})), {})
    fleet.remove("a")
    assert fleet.serves("keti").tolist() == [False, False] + [True] * 100
    assert fleet.serves("gpushare").tolist() == [False, True] + [False] * 100
    assert [fleet.models[number] for number in fleet.model_id[:2, 1]] == ["Tesla T4", "Tesla T4"]


@dataclass(frozen=True)
class PlacedEntry:
    uid: str
    since: float
    charges: dict[str, Charge]


def test_what_was_placed_too_late_to_show_in_a_sample_adds_to_it() -> None:
    fleet = Block(8)
    early = PlacedEntry("early", 5.0, {"GPU-n1-0": Charge(30, 1)})
    late = PlacedEntry("late", 45.0, {"GPU-n1-0": Charge(20, 1)})
    by_memory = PlacedEntry("by-memory", 116.0, {"GPU-n1-0": Charge(0, 7680), "GPU-gone": Charge(1, 1)})
    fleet.put(make_cards(), {}, [early, late, by_memory])
    assert np.isnan(fleet.load[:2, 0]).all()
    assert fleet.placed_since[:2, 0].tolist() == [0.0, 0.0]
    fleet.set_load("n1", {"GPU-n1-0": (0.25, 100.0)})
    fleet.set_load("ghost", {})
    assert (fleet.load[0, 0], fleet.load_at[0, 0]) == (0.25, 100.0)
    assert fleet.placed_since[:2, 0].tolist() == [0.7, 0.0]
    fleet.put(make_cards(), {}, [late])
    assert (fleet.load[0, 0], fleet.placed_since[0, 0]) == (0.25, 0.2)


def test_a_pod_that_was_measured_is_in_the_load_already() -> None:
    fleet = Block(8)
    fleet.put(make_cards(), {}, [PlacedEntry("late", 95.0, {"GPU-n1-0": Charge(20, 1)})])
    fleet.set_load("n1", {"GPU-n1-0": (0.25, 100.0)}, frozenset({"late"}))
    assert fleet.placed_since[0, 0] == 0.0
    fleet.put(NodeGpus("n1", (make_gpu(0),), 1024), {}, [PlacedEntry("late", 95.0, {"GPU-n1-0": Charge(20, 1)})])
    assert fleet.placed_since[0, 0] == 0.0


def test_a_sample_stays_with_its_card_when_the_node_s_cards_change() -> None:
    fleet = Block(8)
    fleet.put(make_cards(), {})
    fleet.set_load("n1", {"GPU-n1-1": (0.5, 10.0)})
    fleet.put(NodeGpus("n1", (make_gpu(1), make_gpu(2)), 1024), {})
    assert fleet.load[0, 0] == 0.5
    assert np.isnan(fleet.load[1, 0])


def test_a_card_that_two_nodes_claim_to_have_is_found_on_both() -> None:
    fleet = Block(8)
    for name in ("a", "b"):
        fleet.put(NodeGpus(name, (make_gpu(0, "shared"),), 1024), {})
    assert sorted(fleet.places_of("GPU-shared-0")) == [(0, 0), (0, 1)]
    fleet.remove("a")
    assert sorted(fleet.places_of("GPU-shared-0")) == [(0, 1)]


def test_the_fleet_shows_what_was_put_and_nothing_else() -> None:
    fleet, cards, used = Block(8), make_cards(), {"GPU-n1-0": Charge(0, 1024, shares=1)}
    assert not fleet.shows(cards, {})
    fleet.put(cards, used)
    assert fleet.shows(cards, used)
    assert not fleet.shows(cards, {})
    assert not fleet.shows(make_cards(unhealthy=[0]), used)
    fleet.free_mib[1, 0] -= 1
    assert not fleet.shows(cards, used)
