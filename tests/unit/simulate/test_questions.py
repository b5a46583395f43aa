"""What if: more nodes, more jobs, fewer nodes."""

from collections import Counter
from dataclasses import replace

import pytest

from aliquot.errors import BadInput
from aliquot.model import Charge, Host
from aliquot.simulate.changes import parsed_growth, parsed_nodes
from aliquot.simulate.many import Runner, Task
from aliquot.simulate.orders import shuffled
from aliquot.simulate.policy_names import parsed_policy
from aliquot.simulate.returnable import Returnable, returnable
from aliquot.simulate.scenario import Scene, World
from tests.unit.simulate.worlds import node, one_by_one, pod

POLICY = parsed_policy("binpack")


def test_a_new_node_is_like_the_most_common_one_of_its_model() -> None:
    world = World([node("a", 4, "A100"), node("b", 8, "A100"), node("c", 8, "A100"), node("d")], [pod()])
    order = shuffled(world, 1, 100)
    scene = parsed_nodes("a100=2").apply(world, [order])
    changed, (then,) = scene.world, scene.orders
    assert scene.variant == "+2 A100", "as the nodes spell it"
    assert [(each.model, each.sellable) for each in changed.nodes[4:]] == [("A100", 8)] * 2
    assert changed.capacity == world.capacity + 16
    assert list(then.ranks) == [*order.ranks, 4, 5]
    assert len({gpu.uuid for each in changed.nodes for gpu in each.cards.gpus}) == changed.capacity


def test_a_node_of_a_model_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="no node has cards of model 'H100'; there are T4"):
        parsed_nodes("H100").apply(World([node()], [pod()]), [])


@pytest.mark.parametrize("text", ["", "=3", "G2=0", "G2=-1", "G2=x"])
def test_what_is_no_number_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="neither a model nor MODEL=NUMBER"):
        parsed_nodes(text)


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        ("class=batch", {"large", "pair"}),
        ("cards=8", {"large"}),
        ("cards=2-8", {"large", "pair"}),
        ("cards=0", {"web"}),
        ("share=1-99", {"part"}),
        ("share=50", {"part"}),
        ("model=A100", {"pair"}),
        ("name=p*", {"pair", "part"}),
        ("class=batch,cards=2", {"pair"}),
    ],
)
def test_a_class_grows_and_no_other(selection: str, names: set[str]) -> None:
    pods = [
        pod("large", 8, kind="batch"),
        pod("pair", 2, models=("A100",), kind="batch"),
        pod("part", milli=500),
        pod("web", 0),
    ]
    world = World([node()], pods * 10)
    (then,) = parsed_growth(f"{selection}:30%").apply(world, [one_by_one(world)]).orders
    counts = Counter(world.pods[each.pod].name for each in then.arrivals)
    assert counts == {each.name: 13 if each.name in names else 10 for each in pods}


def test_a_class_can_shrink() -> None:
    world = World([node()], [pod()] * 10)
    (then,) = parsed_growth("cards=1:-20%").apply(world, [one_by_one(world)]).orders
    assert len(then.arrivals) == 8


@pytest.mark.parametrize(("percent", "change"), [(30, 12), (-30, -12), (100, 40), (1, 0), (2, 1), (-98, -39)])
def test_a_class_of_many_sizes_grows_as_a_whole(percent: int, change: int) -> None:
    world = World([node()], [pod(str(number), milli=10 * (number * 7 % 40 + 1)) for number in range(40)])
    (then,) = parsed_growth(f"share=1-99:{percent}%").apply(world, [one_by_one(world)]).orders
    assert len(then.arrivals) == 40 + change
    assert [each.at for each in then.arrivals] == sorted(each.at for each in then.arrivals)


@pytest.mark.parametrize("percent", [30, -30])
def test_every_size_of_a_class_gets_its_share(percent: int) -> None:
    world = World([node()], [pod(str(milli), milli=milli) for milli in (100, 250, 500, 910)] * 15)
    (then,) = parsed_growth(f"cards=1:{percent}%").apply(world, [one_by_one(world)]).orders
    counts = Counter(world.pods[each.pod].name for each in then.arrivals)
    assert counts.total() == 60 * (100 + percent) // 100
    assert all(abs(count - 15 * (100 + percent) / 100) < 1 for count in counts.values())


@pytest.mark.parametrize("text", ["cards=8", "cards=8:lots", ":30%", "cards=8:-101"])
def test_what_is_no_growth_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not CLASS:PERCENT"):
        parsed_growth(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind=x", "'kind' is not known"),
        ("cards", "is not a class"),
        ("cards=few", "neither a number"),
        ("class=x", "no pod is of"),
    ],
)
def test_a_class_that_nobody_is_of_is_refused(text: str, words: str) -> None:
    world = World([node()], [pod()])
    with pytest.raises(BadInput, match=words):
        parsed_growth(f"{text}:30%").apply(world, [one_by_one(world)])


def found(world: World, policy: str = "binpack") -> list[Returnable]:
    with Runner([Scene(world, [one_by_one(world)])]) as runner:
        tasks = [Task(parsed_policy(policy))]
        return returnable(runner, world, tasks, runner.run(tasks))


def test_nodes_without_which_all_pods_still_fit_can_be_returned() -> None:
    nodes = [node("a"), node("b"), node("c"), node("d", 4, "A100"), node("e", 4, "A100"), node("f", 0)]
    world = World(nodes, [pod("x", 2), pod("y", 4), pod("z")])
    by_model = {each.model: (len(each.nodes), each.of, each.cards) for each in found(world)}
    assert by_model[""] == (3, 5, 6), "seven cards are needed"
    assert by_model["A100"] == (1, 2, 4)
    assert by_model["T4"] == (3, 3, 6), "all fit on the larger nodes"


def test_a_full_cluster_can_return_nothing() -> None:
    world = World([node("a"), node("b")], [pod(str(number)) for number in range(5)])
    assert [each.nodes for each in found(world)] == [(), ()]


def test_a_pod_without_gpu_may_not_fail_either() -> None:
    world = World([node("a"), node("b")], [pod("web", 0, cpu=30_000), pod("web2", 0, cpu=30_000), pod()])
    assert found(world)[0].nodes == ()


def test_a_node_on_which_a_pod_stays_is_not_returned() -> None:
    busy, served = Host(2000, 500), Host(100, 100)
    nodes = [
        node("a"),
        replace(node("b"), taken=busy),
        replace(node("c"), taken=served, daemons=served),
        replace(node("d"), taken=busy + served, daemons=served),
        replace(node("e"), used={"e-0": Charge(0, 10)}),
    ]
    first = found(World(nodes, [pod("x")]))[0]
    assert (first.of, sorted(first.nodes)) == (2, ["a", "c"])


def test_the_last_node_with_cards_stays() -> None:
    assert found(World([node("a"), node("b", 0)], [pod("web", 0)]))[0].nodes == ()
