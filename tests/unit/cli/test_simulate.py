"""`aliquot simulate`: what its options do, and which of them are refused."""

import json
from pathlib import Path

import pytest
import structlog
import yaml
from click.testing import CliRunner, Result

from aliquot.cli.simulate import command
from tests.factories import make_cards, node_manifest, pod_manifest

NODES = "nodes: [{name: n, count: 2, cards: 4, model: T4}]\n"
PODS = "name,num_gpu,count\np,1,3\n"
TIMES = "name,num_gpu,creation_time,deletion_time\np,1,0,9\n"
ORDER = "0 1\n0 1 2\n"


def simulate(*args: object) -> Result:
    result = CliRunner().invoke(command, [*map(str, args), "--jobs", "1"])
    structlog.reset_defaults()  # the command's logs went to a stream that is closed by now
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("nodes.yaml", NODES),
        ("pods.csv", PODS),
        ("times.csv", TIMES),
        ("both.yaml", f"{NODES}pods: [{{name: other, count: 5, cards: 1}}]\n"),
        ("order.txt", ORDER),
        ("log.jsonl", ""),
    ):
        (tmp_path / name).write_text(text)
    return tmp_path


LISTS = "--nodes nodes.yaml --pods pods.csv"
WITH_TIMES = "--nodes nodes.yaml --pods times.csv --departures times"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{LISTS} --seeds 1-5", "--seeds has no effect on this order of arrival"),
        (f"{LISTS} --arrivals order.txt --seeds 1", "--seeds has no effect on this order of arrival"),
        (f"{WITH_TIMES} --seeds 1", "--seeds has no effect on this order of arrival"),
        ("--openb . --order listed --seeds 1", "--seeds has no effect on this order of arrival"),
        (f"{WITH_TIMES} --order shuffled", "leave out --order shuffled"),
        (f"{WITH_TIMES} --arrivals order.txt", "--departures times has an order of its own: leave out --arrivals"),
        (f"{LISTS} --order shuffled --arrivals order.txt", "--arrivals names an order of its own: leave out --order"),
        (f"{LISTS} --departures times", "no pod has a time at which it leaves"),
        (f"{LISTS} --policy fgd --compare fgd,binpack", "--compare names every policy: leave out --policy"),
        (f"{LISTS} --keep-bound", "--keep-bound is only for --from-cluster and for --pods in YAML"),
        ("--openb . --keep-bound", "--keep-bound is only for"),
        ("--decision-log log.jsonl --keep-bound", "--keep-bound is only for"),
        (f"{LISTS} --list default", "--list names a list of --openb"),
        (f"{LISTS} --kubeconfig config", "--kubeconfig is only for --from-cluster"),
        (f"{LISTS} --context east", "--context is only for --from-cluster"),
    ],
)
def test_an_option_without_effect_is_refused(line: str, words: str) -> None:
    result = simulate(*line.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


@pytest.mark.parametrize(
    "line",
    [
        f"{LISTS} --order shuffled --seeds 1-2",
        f"{LISTS} --arrivals order.txt",
        f"{WITH_TIMES} --order listed",
        f"{LISTS} --departures 110",
        "--nodes nodes.yaml --pods both.yaml --keep-bound",
    ],
)
def test_options_that_belong_together_are_taken(line: str) -> None:
    assert simulate(*line.split()).exit_code == 0


@pytest.mark.parametrize("names", ["fgd,fgd", "fgd, fgd"])
def test_a_policy_that_is_named_twice_counts_once(names: str) -> None:
    found = json.loads(simulate(*LISTS.split(), "--compare", names, "-o", "json").stdout)
    assert [each["policy"] for each in found["runs"]] == ["fgd"]


@pytest.mark.parametrize(
    ("nodes", "pods", "arrivals"),
    [("both.yaml", "pods.csv", 3), ("nodes.yaml", "both.yaml", 5), ("both.yaml", "./both.yaml", 5)],
)
def test_nodes_come_from_one_file_and_pods_from_the_other(nodes: str, pods: str, arrivals: int) -> None:
    (found,) = json.loads(simulate("--nodes", nodes, "--pods", pods, "-o", "json").stdout)["runs"]
    assert (found["cards"], found["arrivals"]) == (8, arrivals)


def test_results_are_printed_even_if_a_plot_cannot_be_written(folder: Path) -> None:
    (folder / "a.png").symlink_to(folder / "none" / "a.png")  # the folder is there, but the file cannot be opened
    result = simulate(*LISTS.split(), "--plot", "a.png")
    assert result.exit_code == 2
    assert result.stdout.startswith("policy")
    assert "--plot: a.png cannot be written: no such file" in result.stderr


def test_a_folder_that_is_not_there_is_found_before_the_runs() -> None:
    result = simulate(*LISTS.split(), "--plot", "none/a.png")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no folder none" in result.stderr


@pytest.mark.parametrize(("departures", "shown"), [((), "at N %"), (("--departures", "40"), "settled")])
def test_only_columns_that_are_shown_are_explained(departures: tuple[str, ...], shown: str) -> None:
    text = simulate(*LISTS.split(), "--order", "shuffled", "--arrived", "400", *departures).stdout
    explained = {line[:12].strip() for line in text.splitlines()[-6:]}
    assert explained & {"at N %", "settled"} == {shown}


def test_what_was_left_out_is_told_before_nothing_is_left(folder: Path) -> None:
    node = node_manifest("n1", make_cards("n1"), spec={"unschedulable": True})
    (folder / "all.yaml").write_text(yaml.safe_dump_all([node, pod_manifest("p")]))
    result = simulate("--nodes", "all.yaml", "--pods", "all.yaml")
    assert result.exit_code == 2
    first, last = result.stderr.splitlines()
    assert first == "left out: node n1 is cordoned"
    assert "every node is cordoned (1): there is nothing to simulate" in last
