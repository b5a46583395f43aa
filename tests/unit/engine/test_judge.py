"""judge() against a plain search that is too simple to be wrong."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine import Fleet, check_policies, judge
from aliquot.errors import BadConfig, BadDemand, BadInput
from aliquot.model import (
    CORES,
    Charge,
    Constraints,
    ContainerRequest,
    Gpu,
    Life,
    Memory,
    Mode,
    ModelConstraint,
    NodeGpus,
    Part,
    Placement,
    Reason,
    Request,
    Topology,
    Unit,
)
from aliquot.model import charges as charges_of
from tests.factories import make_cards, make_gpu, make_request

Used = dict[str, Charge]


def fleet_of(*nodes: tuple[NodeGpus, Used]) -> Fleet:
    fleet = Fleet()
    for cards, used in nodes:
        fleet.put(cards, used)
    return fleet


# -- random fleets

charges = st.builds(Charge, st.integers(0, CORES), st.integers(0, 40), st.just(0), st.just(0))
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
    part = request.containers[0].part
    best: Gpu | None = None
    for gpu in cards.gpus:
        need = part.memory.mib(gpu, cards.unit_mib)
        free_mib = max(0, gpu.mib - used[gpu.uuid].mib)
        free_cores = max(0, CORES - used[gpu.uuid].cores)
        suffices = gpu.healthy and free_mib >= need and free_cores >= max(1, part.cores)
        if suffices and (best is None or free_mib < max(0, best.mib - used[best.uuid].mib)):
            best = gpu
    return best


@given(fleets, st.integers(1, 12), st.sampled_from([0, 0, 1, 30, 100]), st.sampled_from([Unit.MIB, Unit.NODE]))
def test_every_node_is_judged_as_a_plain_search_judges_it(
    shape: dict[str, Any], amount: int, cores: int, unit: Unit
) -> None:
    nodes = build(shape)
    request = make_request(amount, cores=cores, unit=unit)
    judgement = judge(fleet_of(*nodes), request, "tightest")
    for cards, used in nodes:
        gpu = search(cards, used, request)
        placement = judgement.placement(cards.node)
        if gpu is None:
            assert placement is None
            assert judgement.refusal(cards.node) is not None
            assert (judgement.refusal(cards.node) is Reason.NO_GPUS) is (not cards.gpus)
        else:
            assert placement is not None
            assert judgement.refusal(cards.node) is None
            assert {part.uuid for part in placement.slices()} == {gpu.uuid}


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


# -- the best node


def test_the_best_node_is_the_fullest_of_those_that_are_asked_for() -> None:
    nodes = [(make_cards(name), {f"GPU-{name}-0": Charge(0, held, shares=1)}) for name, held in HELD.items()]
    judgement = judge(fleet_of(*nodes), make_request(5), "tightest")
    assert judgement.best() == "full"
    assert judgement.best(["empty", "half", "ghost"]) == "half"
    assert judgement.best(["ghost"]) is None
    assert set(judgement.scores([*HELD, "ghost"])) == set(HELD)


HELD = {"empty": 0, "half": 7168, "full": 10240}


def test_equal_nodes_go_by_name() -> None:
    nodes = [(make_cards(name), dict[str, Charge]()) for name in ("b", "a", "c")]
    assert judge(fleet_of(*nodes), make_request(5)).best() == "a"


def test_where_the_first_policy_sees_no_difference_the_next_decides() -> None:
    cards = make_cards(mib=(30720, 15360, 15360))
    used = {"GPU-n1-2": Charge(0, 1024, shares=1)}
    request = make_request(5)
    chosen = {
        policy: [
            part.index for part in (judge(fleet_of((cards, used)), request, policy).placement("n1") or EMPTY).slices()
        ]
        for policy in ("topology", "topology,tightest", "topology, spread")
    }
    assert chosen == {"topology": [0], "topology,tightest": [2], "topology, spread": [0]}


def test_the_scores_of_a_chain_do_not_depend_on_nodes_that_were_there_before() -> None:
    nodes = [(make_cards(name), dict[str, Charge]()) for name in ("a", "b")]
    fresh, older = fleet_of(*nodes), fleet_of((make_cards("c"), {}), *nodes)
    older.remove("c")
    request = make_request(5)
    said = [judge(fleet, request, "binpack", "topology,lookahead").why() for fleet in (fresh, older)]
    assert said[0] == said[1], "the decision log has it, and a replay begins with a fresh Fleet"


EMPTY = Placement("n1", "gpushare", {})


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        pytest.param(("fullest", "binpack"), ["GPU policy: ", "'fullest'", "binpack, "], id="GPU policy"),
        pytest.param(("binpack", "topology,"), ["node policy: ", "''", "spread"], id="node policy"),
    ],
)
def test_a_policy_that_there_is_not_is_named_with_those_that_there_are(
    policies: tuple[str, str], words: list[str]
) -> None:
    with pytest.raises(BadDemand) as error:
        judge(Fleet(), make_request(), *policies)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("gpu", "node", "field"),
    [
        pytest.param("fullest", "", "field of cards", id="GPU policy"),
        pytest.param("binpack", "topology,none", "field of nodes", id="node policy"),
    ],
)
@pytest.mark.parametrize("error", [BadDemand, BadConfig])
def test_names_of_policies_are_checked_where_they_stand(gpu: str, node: str, field: str, error: type[BadInput]) -> None:
    with pytest.raises(error, match=f"^{field}: "):
        check_policies(gpu, node, gpu_field="field of cards", node_field="field of nodes", error=error)
    check_policies("", "", gpu_field="", node_field="")
    check_policies("topology,binpack", "spread", gpu_field="", node_field="")


# -- reasons


A100 = "NVIDIA A100-SXM4-40GB"


def one_card(**fields: Any) -> NodeGpus:
    return NodeGpus("n1", (make_gpu(**fields),), 1024)


def wishing(request: Request, **constraints: Any) -> Request:
    return replace(request, constraints=Constraints(**constraints))


TWO_CARDS = replace(make_request(), containers=(ContainerRequest("c", Part(cards=2, memory=Memory(1))),))
SLOT = replace(make_request(), containers=(ContainerRequest("c", Part(slots=1, memory=Memory(1, Unit.SLOT))),))


@pytest.mark.parametrize(
    ("cards", "used", "request_", "reason"),
    [
        pytest.param(make_cards(mib=()), {}, make_request(), Reason.NO_GPUS, id="no cards"),
        pytest.param(
            replace(make_cards(), dialects=frozenset({"tencent"})), {}, make_request(), Reason.NOT_SERVED, id="dialect"
        ),
        pytest.param(
            make_cards(),
            {},
            wishing(make_request(), models=(ModelConstraint(("A100",)),)),
            Reason.WRONG_MODEL,
            id="model",
        ),
        pytest.param(
            make_cards(), {}, wishing(make_request(), only_uuids=frozenset({"GPU-x"})), Reason.WRONG_CARD, id="uuid"
        ),
        pytest.param(make_cards(), {}, wishing(make_request(), mig="1g.5gb"), Reason.WRONG_CARD, id="no instance"),
        pytest.param(one_card(profile="1g.5gb"), {}, make_request(), Reason.WRONG_CARD, id="only an instance"),
        pytest.param(one_card(healthy=False), {}, make_request(), Reason.NOT_SELLABLE, id="unhealthy"),
        pytest.param(one_card(cordoned=True), {}, make_request(), Reason.NOT_SELLABLE, id="cordoned"),
        pytest.param(one_card(mode=Mode.EXCLUSIVE), {}, make_request(), Reason.WRONG_MODE, id="only whole"),
        pytest.param(one_card(mode=Mode.MPS, slots=4), {}, make_request(), Reason.WRONG_MODE, id="only MPS"),
        pytest.param(one_card(), {}, SLOT, Reason.WRONG_MODE, id="no slots"),
        pytest.param(
            one_card(slots=4),
            {"GPU-n1-0": Charge(0, 1, shares=1)},
            SLOT,
            Reason.WRONG_MODE,
            id="shared without MPS now",
        ),
        pytest.param(
            one_card(slots=4), {"GPU-n1-0": Charge(25, 1, slots=1)}, make_request(), Reason.WRONG_MODE, id="by MPS now"
        ),
        pytest.param(make_cards(), {}, make_request(16), Reason.TOO_LARGE, id="larger than a card"),
        pytest.param(one_card(), {}, TWO_CARDS, Reason.TOO_LARGE, id="more cards than there are"),
        pytest.param(
            make_cards(),
            {},
            wishing(TWO_CARDS, topology=Topology.NVLINK),
            Reason.NO_TOPOLOGY,
            id="not connected",
        ),
        pytest.param(
            make_cards(mib=(15360,)),
            {"GPU-n1-0": Charge(0, 15000, shares=1)},
            make_request(),
            Reason.NO_CARD_FITS,
            id="full",
        ),
    ],
)
def test_a_refusal_gives_the_most_telling_reason(
    cards: NodeGpus, used: Used, request_: Request, reason: Reason
) -> None:
    assert judge(fleet_of((cards, used)), request_).refusals(["n1"]) == {"n1": reason}


def test_a_search_that_was_given_up_is_not_called_full() -> None:
    """Three thirds of a card each, but not equal ones: nobody knows whether there is a way."""
    odd = [place * place * 37 % 211 - 105 for place in range(39)]
    odd[-1] -= sum(odd)
    parts = [Part(memory=Memory(3333 + 7 * more), cores=place % 7) for place, more in enumerate(odd)]
    containers = tuple(ContainerRequest(f"c{place}", part) for place, part in enumerate(parts))
    request = Request("u", "default/p", "aliquot", containers)
    judgement = judge(fleet_of((make_cards(mib=[10000] * 13), {})), request)
    assert judgement.refusal("n1") is Reason.SEARCH_LIMIT


def test_more_large_parts_than_cards_are_too_many_without_a_search() -> None:
    parts = [Part(memory=Memory(5001 + 7 * place), cores=place % 7) for place in range(40)]
    containers = tuple(ContainerRequest(f"c{place}", part) for place, part in enumerate(parts))
    judgement = judge(fleet_of((make_cards(mib=[10000] * 39), {})), Request("u", "default/p", "aliquot", containers))
    assert judgement.refusal("n1") is Reason.TOO_LARGE


# -- several containers on many nodes


def test_containers_are_placed_apart_where_one_card_has_no_room_for_both() -> None:
    nodes = [(make_cards(f"n{number}", mib=(15360, 15360)), dict[str, Charge]()) for number in range(3)]
    parts = {"a": Part(memory=Memory(10000)), "b": Part(memory=Memory(9000)), "c": Part(memory=Memory(6000))}
    request = Request("u", "p", "aliquot", tuple(ContainerRequest(name, part) for name, part in parts.items()))
    placement = judge(fleet_of(*nodes), request).placement("n1")
    assert placement is not None
    assert {name: [part.index for part in slices] for name, slices in placement.containers.items()} == {
        "a": [0],
        "b": [1],
        "c": [1],
    }


def test_a_node_on_which_greed_fails_is_searched() -> None:
    """The largest first on the fullest card leaves 20 + 30 for 30 + 30."""
    used = {"GPU-n1-0": Charge(20, 0, shares=1), "GPU-n1-1": Charge(10, 0, shares=1)}
    parts = (Part(cores=60), Part(cores=50), Part(cores=30), Part(cores=30))
    request = Request("u", "p", "aliquot", tuple(ContainerRequest(f"c{n}", part) for n, part in enumerate(parts)))
    judgement = judge(fleet_of((make_cards(), used)), request)
    assert judgement.refusal("n1") is None
    placement = judgement.placement("n1")
    assert placement is not None
    held = charges_of(placement, request)
    assert {uuid: charge.cores for uuid, charge in held.items()} == {"GPU-n1-0": 80, "GPU-n1-1": 90}
    assert [rows.ravel().tolist() for _, rows in judgement.outcomes[0].views] == [
        [part.index for part in placement.containers[f"c{n}"]] for n in range(4)
    ]


def test_what_a_pod_takes_of_a_node_counts_init_containers_as_max() -> None:
    lives = (Life.SIDECAR, Life.INIT, Life.MAIN)
    parts = zip(lives, (1000, 9000, 4000), strict=True)
    containers = (ContainerRequest(life.value, Part(memory=Memory(mib)), life) for life, mib in parts)
    judgement = judge(fleet_of((make_cards(mib=(15360,)), {})), Request("u", "p", "aliquot", tuple(containers)))
    (outcome,) = judgement.outcomes
    assert (outcome.taken_mib.tolist(), outcome.after_mib[0].tolist()) == ([10000], [5360])
