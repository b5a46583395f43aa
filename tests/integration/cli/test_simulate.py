"""`aliquot simulate` from end to end."""

import json
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result

from aliquot.cli.simulate import command
from aliquot.control.decision_log.writer import DecisionLog
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import NodeSeen, PodForgotten, PodSeen
from aliquot.embedded.api import resources
from tests.factories import container_manifest, make_cards, make_node, make_pod, node_manifest, pod_manifest
from tests.fakes import FakeClock, ScriptedApi, until
from tests.integration.cli.command import ALIQUOT, run, started
from tests.integration.cli.servers import kubeconfig

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "simulate.md").read_text()
LISTS = ("--nodes", str(ROOT / "examples/simulate/nodes.csv"), "--pods", str(ROOT / "examples/simulate/pods.csv"))


def simulate(*args: object, jobs: int = 1) -> Result:
    result = CliRunner().invoke(command, [*map(str, args), "--jobs", str(jobs)])
    structlog.reset_defaults()  # the command's logs went to a stream that is closed by now
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def runs(*args: object, jobs: int = 1) -> list[dict[str, Any]]:
    result = simulate(*args, "-o", "json", jobs=jobs)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["runs"]
    for each in found:
        assert each.pop("seconds") > 0
    return found


BLOCKS = re.findall(r"^```console\n\$ aliquot simulate (.*?[^\\])\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("line", "shown"), BLOCKS, ids=[f"{place}" for place in range(len(BLOCKS))])
def test_the_guide_shows_what_is_printed(line: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = simulate(*shlex.split(line.replace("\\\n", "")))
    assert result.exit_code == 0
    assert result.stdout.startswith(shown)


def test_the_guide_has_an_example_of_every_question() -> None:
    lines = " ".join(line for line, _ in BLOCKS)
    assert {"--compare", "--returnable", "--add-node", "--grow"} <= set(lines.split())


def test_several_processes_find_the_same_as_one() -> None:
    args = (*LISTS, "--compare", "fgd,binpack", "--order", "shuffled", "--seeds", "1-3", "--add-node", "T4")
    alone, together = runs(*args), runs(*args, jobs=2)
    assert alone == together
    assert [(each["policy"], each["order"], each["variant"]) for each in alone] == [
        (policy, order, variant) for policy in ("fgd", "binpack") for variant in ("", "+1 T4") for order in "123"
    ]


def test_pods_that_leave_make_room_for_others() -> None:
    args = (*LISTS, "--policy", "binpack", "--order", "shuffled", "--arrived", 400)
    (stay,), (leave,) = runs(*args), runs(*args, "--departures", 60)
    assert leave["arrivals"] == stay["arrivals"]
    assert leave["failed"] < stay["failed"] / 4


def test_the_orders_of_openb_are_found_by_list_and_seed(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\na,9,9,1,T4\nb,9,9,1,G2\n"
    )
    (tmp_path / "openb_pod_list_tiny.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1,1,1000\n")
    (tmp_path / "arrivals").mkdir()
    (tmp_path / "arrivals" / "tiny_7.txt").write_text("1 0\n0\n")
    (found,) = runs("--openb", tmp_path, "--list", "tiny", "--seeds", 7)
    assert [each["model"] for each in found["models"] if each["allocated"]] == ["G2"]
    assert "no published order" in simulate("--openb", tmp_path, "--list", "tiny", "--seeds", 8).stderr
    assert "has no list 'default'; it has tiny" in simulate("--openb", tmp_path).stderr


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_plots_are_drawn(tmp_path: Path, name: str, begins: bytes) -> None:
    result = simulate(
        *LISTS, "--compare", "binpack,fgd", "--order", "shuffled", "--seeds", "1-2", "--plot", tmp_path / name
    )
    assert result.exit_code == 0
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_who_has_no_matplotlib_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = simulate(*LISTS, "--plot", tmp_path / "a.png")
    assert result.exit_code == 2
    assert "pip install 'aliquot[simulate]'" in result.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "name one source of the cluster and its pods"),
        ((*LISTS, "--from-cluster"), "name one source of the cluster and its pods"),
        (LISTS[:2], "--nodes and --pods belong together"),
        ((*LISTS, "--policy", "best"), "'best' is not a policy; choose one of admission"),
        ((*LISTS, "--policy", "free-count"), "only for nodes; write both, such as free-count/binpack"),
        ((*LISTS, "--order", "published"), "--order published needs --openb"),
        ((*LISTS, "--departures", "never"), "neither 'times' nor a load"),
        ((*LISTS, "--plot", "a.pdf"), "does not end in .png or .svg"),
        ((*LISTS, "--add-node", "H100"), "no node has cards of model 'H100'; there are A100, T4"),
        ((*LISTS, "--grow", "cards=7:10%"), "no pod is of the class 'cards=7'"),
        ((*LISTS, "--returnable", "--add-node", "T4"), "leave out --add-node"),
    ],
)
def test_what_cannot_be_done_is_said(args: tuple[str, ...], words: str) -> None:
    result = simulate(*args)
    assert result.exit_code == 2
    assert result.stderr.startswith("aliquot: ")
    assert words in result.stderr


def web(node: str, owner: str) -> dict[str, Any]:
    container = container_manifest(gpu_mem=None, resources={"requests": {"cpu": "1"}})
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "u"}]
    return pod_manifest(f"web-{node}", containers=[container], node=node, metadata={"ownerReferences": owners})


async def test_a_live_cluster_is_read_and_nothing_is_written(scripted: ScriptedApi, folder: Path) -> None:
    for name in ("n1", "n2"):
        scripted.registry.create(resources.NODES, "", node_manifest(name, make_cards(name)))
    for number in range(5):
        scripted.registry.create(resources.PODS, "default", pod_manifest(f"p{number}", 15))
    scripted.registry.create(resources.PODS, "default", web("n1", "ReplicaSet"))
    scripted.registry.create(resources.PODS, "default", web("n2", "DaemonSet"))
    args = (
        "--from-cluster",
        "--kubeconfig",
        kubeconfig(folder, scripted.url),
        "--returnable",
        "-o",
        "json",
        "--jobs",
        "1",
    )
    ended = (await run("simulate", *args, command=ALIQUOT)).clean()
    assert ended.code == 0, ended.err
    (found,) = json.loads(ended.out)["runs"]
    assert (found["cards"], found["arrivals"], found["failed"]) == (4, 5, 1)
    assert json.loads(ended.out)["returnable"][0]["of"] == 1, "a pod that needs a node runs on n1"
    assert {(seen.method, seen.path.rpartition("/")[2]) for seen in scripted.seen} == {
        ("GET", "nodes"),
        ("GET", "pods"),
    }


async def test_a_cluster_that_does_not_answer_is_an_error(folder: Path) -> None:
    args = ("--from-cluster", "--kubeconfig", kubeconfig(folder, "http://127.0.0.1:1"))
    ended = (await run("simulate", *args, command=ALIQUOT)).clean()
    assert ended.code == 2
    assert ended.err.startswith("aliquot: ")


def test_the_pods_of_a_decision_log_arrive_and_leave(tmp_path: Path) -> None:
    cluster, clock, path = ClusterState(), FakeClock(), tmp_path / "decisions.jsonl"
    cluster.apply(NodeSeen(make_node("n1", make_cards())))
    cluster.apply(PodSeen(make_pod("before", 15, uid="before")))
    with DecisionLog(path, cluster, clock=clock):
        for number in range(3):
            cluster.apply(PodSeen(make_pod(f"p{number}", 15, uid=f"p{number}")))
            cluster.apply(PodForgotten(f"p{number}"))
    (stay,), (leave,) = runs("--decision-log", path), runs("--decision-log", path, "--departures", "times")
    assert (stay["cards"], stay["arrivals"], stay["failed"]) == (2, 3, 1)
    assert (leave["arrivals"], leave["failed"]) == (3, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_whoever_stops_it_stops_all_of_its_processes(number: signal.Signals) -> None:
    args = (*LISTS, "--order", "shuffled", "--arrived", "10000", "--seeds", "1-50", "--jobs", "2")
    async with started(*ALIQUOT, "simulate", *args, "--policy", "binpack") as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def workers() -> list[str]:
            commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in children.read_text().split()}
            return [pid for pid, command in commands.items() if "spawn_main" in command]

        await until(lambda: len(workers()) == 2, "two workers run")
        began = workers()
        assert (await process.stop(number)).code != 0
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in began), "both have ended")
