"""Clusters and pods from files."""

from pathlib import Path

import numpy as np
import pytest

from aliquot.dialects import standard_dialects
from aliquot.errors import BadInput
from aliquot.model import UNKNOWN_HOST, Host, Memory, Part, Unit
from aliquot.simulate.csv_lists import read_nodes, read_pods
from aliquot.simulate.objects import Objects
from aliquot.simulate.policy_names import parsed_policy
from aliquot.simulate.published_order import read_order
from aliquot.simulate.run import run
from aliquot.simulate.scenario import World
from aliquot.simulate.yaml_lists import read_yaml
from tests.unit.simulate.worlds import node, one_by_one, pod

EXAMPLES = Path(__file__).parents[3] / "examples"


def written(folder: Path, text: str, name: str = "list.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def from_yaml(path: Path, *, keep_bound: bool = False) -> Objects:
    objects = Objects(standard_dialects(), keep_bound)
    read_yaml(path, objects)
    return objects


def test_nodes_in_the_columns_of_openb(tmp_path: Path) -> None:
    text = "sn,cpu_milli,memory_mib,gpu,model\nb,64000,262144,2,P100\na,8000,1024,0,\n"
    found = read_nodes(written(tmp_path, text))
    assert [(each.name, each.model, each.sellable, each.host) for each in found] == [
        ("b", "P100", 2, Host(64000, 262144)),
        ("a", "", 0, Host(8000, 1024)),
    ]


@pytest.mark.parametrize("text", ["sn,gpu\nn,1\n", "sn,gpu,cpu_milli,memory_mib\nn,1,,\n"])
def test_what_a_list_does_not_say_of_a_node_is_never_short(tmp_path: Path, text: str) -> None:
    (found,) = read_nodes(written(tmp_path, text))
    assert found.host == UNKNOWN_HOST
    world = World([found], [pod(cpu=8000, memory=8000)])
    assert run(world, one_by_one(world), parsed_policy("lookahead")).failed == ()


def test_the_short_form_of_a_node_may_leave_out_cpu_or_memory(tmp_path: Path) -> None:
    text = "nodes: [{name: a, cards: 1}, {name: b, cards: 1, cpu: 4}, {name: c, cards: 1, cpu: 0, memory: 1Gi}]"
    hosts = [each.host for each in from_yaml(written(tmp_path, text, "a.yaml")).nodes]
    assert hosts == [UNKNOWN_HOST, Host(4000, UNKNOWN_HOST.memory), Host(0, 1024)]


def test_a_list_that_a_spreadsheet_wrote_can_be_read(tmp_path: Path) -> None:
    assert [each.name for each in read_nodes(written(tmp_path, "\ufeffsn,gpu\nn1,2\n"))] == ["n1"]


def test_pods_in_the_columns_of_openb(tmp_path: Path) -> None:
    text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "one,12000,16384,1,1000,,LS,Running,5,1250,5\n"
        "part,6000,12288,1,460,V100M16|V100M32,BE,Running,427061,,\n"
        "web,100,200,0,0,,LS,Running,1,2,3\n"
    )
    one, part, web = read_pods(written(tmp_path, text))
    assert [each.part for each in one.request.containers] == [Part(whole=True)]
    assert (one.kind, one.arrives, one.leaves) == ("LS", 5.0, 1250.0)
    assert [each.part for each in part.request.containers] == [Part(memory=Memory(46, Unit.PERCENT))]
    assert part.request.constraints.models[0].names == ("V100M16", "V100M32")
    assert (part.leaves, part.request.host) == (None, Host(6000, 12288))
    assert (web.request.containers, web.cards) == ((), 0)


def test_shares_are_rounded_up_to_percent(tmp_path: Path) -> None:
    (found,) = read_pods(written(tmp_path, "name,num_gpu,gpu_milli\np,1,461\n"))
    assert found.request.containers[0].part.memory == Memory(47, Unit.PERCENT)


def test_memory_of_cards_counts_where_a_list_has_it(tmp_path: Path) -> None:
    (card,) = read_nodes(written(tmp_path, "sn,gpu,gpu_memory_mib\nn,1,16384\n"))
    (found,) = read_pods(written(tmp_path, "name,num_gpu,gpu_memory_mib\np,2,8192\n"))
    assert card.cards.gpus[0].mib == 16384
    assert found.request.containers[0].part == Part(2, memory=Memory(8192))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,gpu_milli\np,1\n", "has no column 'num_gpu'; it has name, gpu_milli"),
        ("name,num_gpu\np,many\n", "line 2: num_gpu: 'many' is not a whole number"),
        ("name,num_gpu,cpu_milli\np,1,-5\n", "line 2: cpu_milli: '-5' is not a whole number"),
        ("name,num_gpu,gpu_milli\np,1,0\n", "line 2: gpu_milli is 0, but num_gpu is not"),
        ("name,num_gpu,gpu_milli\np,1,1001\n", "from 0 to 1000"),
        ("name,num_gpu,creation_time\np,1,noon\n", "'noon' is not a number of seconds"),
        ("name,num_gpu,creation_time,deletion_time\np,1,10,5\n", "line 2: deletion_time is before creation_time"),
        ("name,num_gpu,count\np,1,1099511627776\n", "count: '1099511627776' is not a whole number from 0 to 100000"),
        ("", "has no column 'name'"),
    ],
)
def test_what_is_wrong_in_a_list_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words.replace("'", ".")):
        read_pods(written(tmp_path, text))


def test_the_short_form_and_the_lists_say_the_same() -> None:
    lists = World(read_nodes(EXAMPLES / "simulate" / "nodes.csv"), read_pods(EXAMPLES / "simulate" / "pods.csv"))
    assert from_yaml(EXAMPLES / "simulate" / "cluster.yaml").world() == lists


@pytest.mark.parametrize("share", ["25%", 0.25, "0.25"])
def test_a_share_is_a_percentage_or_a_fraction(tmp_path: Path, share: object) -> None:
    (found,) = from_yaml(written(tmp_path, f"pods: [{{name: p, cards: 1, share: {share}}}]", "a.yaml")).pods
    assert found.request.containers[0].part.memory == Memory(25, Unit.PERCENT)


@pytest.mark.parametrize(
    ("fields", "part"),
    [("share: 25%", Part(memory=Memory(25, Unit.PERCENT))), ("cardMemory: 10Gi", Part(memory=Memory(10240)))],
)
def test_a_part_of_a_card_means_one_card(tmp_path: Path, fields: str, part: Part) -> None:
    (found,) = from_yaml(written(tmp_path, f"pods: [{{name: p, {fields}}}]", "a.yaml")).pods
    assert [each.part for each in found.request.containers] == [part]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pods: [{name: p, gpus: 1}]", "unknown field `gpus`"),
        ("pods: [{name: p, cards: 1, share: 0}]", "pod p, share: '0.0' is not a share of a card"),
        ("pods: [{name: p, share: half}]", "pod p, share: 'half' is not a share of a card"),
        ("pods: [{name: p, cpu: lots}]", "pod p, cpu: 'lots' is not a Kubernetes quantity"),
        ("pods: [{name: p, memory: lots}]", "pod p, memory: 'lots' is not a Kubernetes quantity"),
        ("nodes: [{name: n, cards: 1, cardMemory: lots}]", "node n, cardMemory: 'lots' is not a Kubernetes quantity"),
        ("pods: [{name: p, cards: 0, share: 25%}]", "pod p, cards: share, cardMemory and models are of cards"),
        ("pods: [{name: p, cards: 0, models: [T4]}]", "pod p, cards: share, cardMemory and models are of cards"),
        ("pods: [{name: p, models: [T4]}]", "pod p, cards: share, cardMemory and models are of cards"),
        ("pods: [{name: p, share: 25%, cardMemory: 1Gi}]", "pod p, share: cardMemory stands in its place"),
        ("pods: [{name: p, cards: 1, arrives: 9, leaves: 8}]", "pod p, leaves: it leaves before it arrives"),
        ("nodes: [{cards: 1}]", "missing required field `name`"),
        ("kind: Deployment", "kind 'Deployment' is not read here"),
        ("{kind: List, items: [1]}", "Expected `object`, got `int`"),
        ("{kind: List, items: 5}", "Expected `array`, got `int`"),
        ("- 1", "neither an object nor a list"),
        ("a: [", "cannot be read"),
    ],
)
def test_what_is_wrong_in_yaml_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        from_yaml(written(tmp_path, text, "a.yaml"))
    assert words in str(error.value)
    assert "a.yaml" in str(error.value)


def test_an_order_counts_nodes_and_pods_by_name(tmp_path: Path) -> None:
    world = World([node("b"), node("a")], [pod("z"), pod("x"), pod("y")])
    order = read_order(written(tmp_path, "7 3\n0 2 0\n", "default_42.txt"), world)
    assert order.name == "default_42"
    assert [world.pods[each.pod].name for each in order.arrivals] == ["x", "z", "x"]
    assert order.ranks == [3, 7]


@pytest.mark.parametrize(
    ("text", "words"),
    [("0\n0\n", "ranks 1 nodes; the cluster has 2"), ("0 1\n3\n", "does not have"), ("0 1", "no two")],
)
def test_an_order_of_another_cluster_is_refused(tmp_path: Path, text: str, words: str) -> None:
    world = World([node("b"), node("a")], [pod("z"), pod("x"), pod("y")])
    with pytest.raises(BadInput, match=words):
        read_order(written(tmp_path, text), world)


def test_a_node_that_is_there_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="node a is there twice"):
        World([node("a"), node("a")], [])
    with pytest.raises(BadInput, match="no card"):
        World([node("a", 0)], [])


def test_a_node_without_name_is_refused() -> None:
    with pytest.raises(BadInput, match="a node has no name"):
        World([node("")], [])


@pytest.mark.parametrize(("arrives", "leaves"), [(float("nan"), None), (float("inf"), None), (0.0, float("nan"))])
def test_times_are_numbers(arrives: float, leaves: float | None) -> None:
    with pytest.raises(BadInput, match="pod p: its times are not numbers"):
        World([node()], [pod(arrives=arrives, leaves=leaves)])


def test_amounts_in_yaml_that_no_array_can_hold_count_as_boundless(tmp_path: Path) -> None:
    text = "pods: [{name: p, cards: 1, cpu: 9223372036854775807, memory: 7Ei, cardMemory: 7Ei}]"
    (found,) = from_yaml(written(tmp_path, text, "a.yaml")).pods
    np.array([found.request.host.cpu, found.request.host.memory, found.request.containers[0].part.memory.amount * 1000])
