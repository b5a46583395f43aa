"""The Fleet's arrays: nodes come, change, go, and their columns are used again."""

from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine import Fleet, NameBlock, NodeState, judge
from aliquot.model import Charge, NodeGpus
from aliquot.model.bounds import MAX_CARDS
from tests.factories import make_cards, make_gpu, make_request

NAMES = ("large", "other", "small", "wide", *(f"n{number}" for number in range(200)))
"""Every node that a test here may put."""


def fitting(fleet: Fleet, units: int) -> set[str]:
    judgement = judge(fleet, make_request(units), "tightest")
    return set(NAMES) - judgement.refusals(NAMES).keys()


def test_a_node_is_put_changed_and_removed() -> None:
    fleet = Fleet()
    fleet.put(make_cards(), {})
    assert fitting(fleet, 15) == {"n1"}
    fleet.put(make_cards(), {"GPU-n1-0": Charge(0, 1), "GPU-n1-1": Charge(0, 1)})
    assert fitting(fleet, 15) == set()
    fleet.remove("n1")
    assert (fitting(fleet, 1), fleet.column("n1")) == (set(), None)
    fleet.remove("n1")


def test_a_removed_node_s_column_is_used_again_and_keeps_nothing_of_it() -> None:
    fleet = Fleet()
    fleet.put(make_cards("large", mib=[81920] * 8), {})
    fleet.put(make_cards("other"), {})
    fleet.remove("large")
    fleet.put(make_cards("small", mib=(1024,)), {})
    assert (fleet.column("small"), fleet.width) == (0, 2)
    assert fitting(fleet, 2) == {"other"}


def test_a_node_that_loses_cards_does_not_sell_them() -> None:
    fleet = Fleet()
    fleet.put(make_cards(mib=(1024, 15360)), {})
    fleet.put(make_cards(mib=(1024,)), {})
    assert fitting(fleet, 2) == set()


def test_the_arrays_grow_in_both_directions_and_keep_what_they_hold() -> None:
    fleet = Fleet()
    for number in range(200):
        fleet.put(make_cards(f"n{number}", mib=[1024 * (number + 1)]), {})
    fleet.put(make_cards("wide", mib=[1024] * 16 + [512_000]), {})
    assert fitting(fleet, 200) == {"n199", "wide"}
    assert fitting(fleet, 151) == {f"n{number}" for number in range(150, 200)} | {"wide"}


def test_what_is_in_use_of_a_card_that_is_gone_is_nobody_s_concern() -> None:
    fleet = Fleet()
    fleet.put(make_cards(mib=(15360,)), {"GPU-gone": Charge(100, 15360)})
    assert fitting(fleet, 15) == {"n1"}


nodes = st.integers(0, 9)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("put"), nodes, st.lists(st.integers(0, 5), max_size=12)),
        st.tuples(st.just("remove"), nodes, st.just([])),
    ),
    max_size=30,
)


@given(changes)
def test_after_any_changes_the_fleet_sells_what_the_last_of_them_says(
    changes: list[tuple[str, int, list[int]]],
) -> None:
    fleet = Fleet()
    expected: dict[str, list[int]] = {}
    for change, number, units in changes:
        name = f"n{number}"
        if change == "put":
            fleet.put(make_cards(name, mib=[1024 * size for size in units]), {})
            expected[name] = units
        else:
            fleet.remove(name)
            expected.pop(name, None)
    assert {name for name in NAMES if fleet.column(name) is not None} == set(expected)
    for wanted in (1, 3, 5):
        assert fitting(fleet, wanted) == {name for name, units in expected.items() if max(units, default=0) >= wanted}


# -- nodes of many sizes

MIXED = st.lists(st.tuples(st.sampled_from((1, 7, 8, 9, 16, 17, 40)), st.integers(0, 15)), min_size=1, max_size=6)


def mixed(sizes: list[tuple[int, int]]) -> list[NodeState]:
    """Nodes of so many cards, of which each has so many units in use."""
    states = []
    for number, (cards, units) in enumerate(sizes):
        node = make_cards(f"n{number}", mib=[15360] * cards)
        states.append(NodeState(node, {gpu.uuid: Charge(0, 1024 * units, shares=1) for gpu in node.gpus if units}))
    return states


def fleet_of(states: list[NodeState]) -> Fleet:
    fleet = Fleet()
    for state in states:
        fleet.put(state.cards, state.used)
    return fleet


@given(MIXED, st.integers(1, 16))
def test_a_node_is_judged_as_if_it_were_alone_whatever_sizes_the_others_have(
    sizes: list[tuple[int, int]], units: int
) -> None:
    states, request = mixed(sizes), make_request(units)
    together = judge(fleet_of(states), request, "tightest")
    names = [state.cards.node for state in states]
    alone = {state.cards.node: judge(fleet_of([state]), request, "tightest") for state in states}
    assert together.refusals(names) == {name: why for name in names if (why := alone[name].refusal(name))}
    assert [together.placement(name) for name in names] == [alone[name].placement(name) for name in names]
    scores = {name: alone[name].scores([name])[name] for name in names if alone[name].fits.any()}
    assert together.scores(names) == scores
    best = min(scores, key=lambda name: (-scores[name], name), default=None)
    assert together.best() == together.best(names) == best
    assert together.fits.sum() == len(scores)


@given(MIXED, st.sampled_from(["binpack,spread", "free-count,tightest,binpack", "keti,random"]))
def test_policies_one_after_another_compare_nodes_of_all_sizes(sizes: list[tuple[int, int]], policies: str) -> None:
    states, request = mixed(sizes), make_request(1)
    fleet, names = fleet_of(states), [state.cards.node for state in states]
    single = [judge(fleet, request, node_policy=name).scores(names) for name in policies.split(",")]
    ranks = judge(fleet, request, node_policy=policies).scores(names)
    by_tuple = sorted(ranks, key=lambda name: [scores[name] for scores in single])
    assert sorted(ranks, key=lambda name: (ranks[name], by_tuple.index(name))) == by_tuple


def test_the_largest_card_of_the_cluster_counts_wherever_it_stands() -> None:
    fleet = Fleet()
    fleet.put(make_cards("small", mib=[1024]), {})
    fleet.put(make_cards("large", mib=[1024] * 20 + [81920]), {})
    assert [block.largest_mib for block in fleet.blocks] == [81920, 81920]


def test_a_node_moves_when_its_cards_become_more_or_fewer_and_keeps_its_samples() -> None:
    fleet = Fleet()
    fleet.put(make_cards("other"), {})
    for cards in (2, 20, 9, 2):
        fleet.put(make_cards("n1", mib=[1024] * cards), {})
        if cards == 2:
            fleet.set_load("n1", {"GPU-n1-1": (0.5, 10.0)})
        block = fleet.block_of("n1")
        assert block is not None
        assert block.loads("n1")["GPU-n1-1"] == (0.5, 10.0)
        assert sorted(filter(None, fleet.names)) == ["n1", "other"]
        assert fleet.name_at(fleet.table.find(NameBlock.of(["n1"])).item()) == "n1"
    assert [block.rows for block in fleet.blocks] == [8], "what holds no node is given back"


def plain_fleet(nodes: int, *others: NodeGpus) -> Fleet:
    """So many nodes of eight cards, and others."""
    fleet = Fleet()
    for number in range(nodes):
        fleet.put(make_cards(f"n{number}", mib=[15360] * 8), {})
    for cards in others:
        fleet.put(cards, {})
    return fleet


def test_a_large_node_takes_memory_for_its_own_cards_alone() -> None:
    """One that has as many cards as any node may have, among 5,000 with eight cards each."""
    plain = plain_fleet(5000).nbytes
    assert plain_fleet(5000, make_cards("large", mib=[15360] * MAX_CARDS)).nbytes < 1.1 * plain


def test_memory_grows_with_the_cards_that_there_are() -> None:
    large = [make_cards(f"large-{number}", mib=[15360] * MAX_CARDS) for number in range(64)]
    of_large, of_small = plain_fleet(0, *large).nbytes, plain_fleet(64 * MAX_CARDS // 8).nbytes
    assert of_large < 1.1 * of_small


def test_names_and_wirings_that_no_card_has_any_more_make_room_for_others() -> None:
    fleet = Fleet()
    for number in range(50):
        gpus = (make_gpu(0, model=f"model {number}", profile=f"{number}g.1gb", numa=number), make_gpu(1, numa=0))
        fleet.put(NodeGpus("n1", gpus, 1024), {})
    (block,) = fleet.blocks
    assert len(block.models) <= 3
    assert len(block.profiles) <= 3
    assert len(block.types) <= 3
    assert [block.models[number] for number in block.model_id[:2, 0]] == ["model 49", "Tesla T4"]
