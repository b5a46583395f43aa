"""judge() against a plain search that is too simple to be wrong."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine import Fleet, judge
from aliquot.model import CORES, Charge, Gpu, NodeGpus, Reason, Request, Unit
from tests.factories import make_cards, make_gpu, make_request

Used = dict[str, Charge]


def fleet_of(*nodes: tuple[NodeGpus, Used]) -> Fleet:
    fleet = Fleet()
    for cards, used in nodes:
        fleet.put(cards, used)
    return fleet


# -- random fleets

charges = st.builds(Charge, st.integers(0, CORES), st.integers(0, 40))
gpus = st.tuples(st.integers(0, 40), st.booleans(), charges)
fleets = st.dictionaries(
    st.sampled_from([f"n{number}" for number in range(8)]),
    st.tuples(st.lists(gpus, max_size=10), st.sampled_from([1, 4])),
    max_size=8,
)


def build(shape: dict[str, Any]) -> list[tuple[NodeGpus, Used]]:
    nodes = []
    for node, (cards, unit_mib) in shape.items():
        made = tuple(make_gpu(i, node, mib=mib, healthy=healthy) for i, (mib, healthy, _) in enumerate(cards))
        used = {gpu.uuid: charge for gpu, (_, _, charge) in zip(made, cards, strict=True)}
        nodes.append((NodeGpus(node, made, unit_mib), used))
    return nodes


def search(cards: NodeGpus, used: Used, request: Request) -> Gpu | None:
    """The healthy card with the least memory that still suffices; of equal ones the first."""
    need = request.memory.mib(cards.unit_mib)
    best: Gpu | None = None
    for gpu in cards.gpus:
        free_mib = max(0, gpu.mib - used[gpu.uuid].mib)
        free_cores = max(0, CORES - used[gpu.uuid].cores)
        suffices = gpu.healthy and free_mib >= need and free_cores >= max(1, request.cores)
        if suffices and (best is None or free_mib < max(0, best.mib - used[best.uuid].mib)):
            best = gpu
    return best


@given(fleets, st.integers(1, 12), st.sampled_from([0, 0, 1, 30, 100]), st.sampled_from(list(Unit)))
def test_every_node_is_judged_as_a_plain_search_judges_it(
    shape: dict[str, Any], amount: int, cores: int, unit: Unit
) -> None:
    nodes = build(shape)
    request = make_request(amount, cores=cores, unit=unit)
    judgement = judge(fleet_of(*nodes), request, "tightest")
    left = {}
    for cards, used in nodes:
        gpu = search(cards, used, request)
        placement = judgement.placement(cards.node)
        if gpu is None:
            assert placement is None
            assert judgement.refusal(cards.node) is (Reason.NO_CARD_FITS if cards.gpus else Reason.NO_GPUS)
        else:
            assert placement is not None
            assert judgement.refusal(cards.node) is None
            assert {part.uuid for part in placement.slices()} == {gpu.uuid}
            left[cards.node] = gpu.mib - used[gpu.uuid].mib - request.memory.mib(cards.unit_mib)
    best = min(left, key=lambda node: (left[node], node), default=None)
    assert judgement.best([cards.node for cards, _ in nodes]) == best


# -- scenarios of the original gpushare


def test_cards_are_chosen_in_the_order_of_the_original() -> None:
    cards = make_cards(mib=(12207, 8138, 4069, 16276), unit_mib=1)
    used: Used = {}
    chosen = []
    for amount in (8138, 16276, 4069, 1):
        placement = judge(fleet_of((cards, used)), make_request(amount), "tightest").placement("n1")
        assert placement is not None
        (part,) = placement.slices()
        used[part.uuid] = used.get(part.uuid, Charge()) + Charge(0, part.mib)
        chosen.append(part.index)
    assert chosen == [1, 3, 2, 0]


@pytest.mark.parametrize(
    ("cards", "used", "amount", "index"),
    [
        pytest.param(make_cards(mib=(4069, 4069), unit_mib=1), {}, 8138, None, id="two halves are no whole"),
        pytest.param(make_cards(mib=(8138,), unit_mib=1), {}, 8138, 0, id="an exact fit fits"),
        pytest.param(make_cards(), {}, 15, 0, id="equal cards go by index"),
        pytest.param(make_cards(unhealthy=[0]), {}, 5, 1, id="an unhealthy card is passed over"),
        pytest.param(make_cards(unhealthy=[0, 1]), {}, 1, None, id="unhealthy cards alone take nobody"),
        pytest.param(
            make_cards(mib=(15360,)), {"GPU-n1-0": Charge(0, 99999)}, 1, None, id="an over-sold card is not bottomless"
        ),
        pytest.param(
            make_cards(), {"GPU-n1-0": Charge(100, 0)}, 1, 1, id="a card whose cores are sold out takes nobody"
        ),
        pytest.param(make_cards(), {"GPU-n1-0": Charge(99, 0)}, 1, 0, id="one with a core left does"),
        pytest.param(make_cards(mib=(15999,), unit_mib=1024), {}, 16, None, id="what is less than a unit is not sold"),
    ],
)
def test_one_node_takes_a_request_on_the_expected_card(
    cards: NodeGpus, used: Used, amount: int, index: int | None
) -> None:
    placement = judge(fleet_of((cards, used)), make_request(amount), "tightest").placement("n1")
    assert (None if placement is None else [part.index for part in placement.slices()]) == (
        None if index is None else [index]
    )


def test_all_containers_of_a_pod_share_one_card_in_their_own_parts() -> None:
    placement = judge(fleet_of((make_cards(mib=(2048, 5120)), {})), make_request(2, 3), "tightest").placement("n1")
    assert placement is not None
    parts = {name: [(part.index, part.mib) for part in slices] for name, slices in placement.containers.items()}
    assert parts == {"c0": [(1, 2048)], "c1": [(1, 3072)]}


def test_an_unknown_node_and_one_without_cards_are_told_apart() -> None:
    judgement = judge(fleet_of((make_cards(mib=()), {})), make_request(), "tightest")
    assert judgement.refusals(["n1", "ghost"]) == {"n1": Reason.NO_GPUS, "ghost": Reason.UNKNOWN_NODE}


def test_an_empty_fleet_takes_nobody() -> None:
    judgement = judge(Fleet(), make_request(), "tightest")
    assert judgement.best([]) is None
    assert judgement.refusal("n1") is Reason.UNKNOWN_NODE
