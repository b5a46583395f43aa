"""What the cluster state was told and decided can be done again from the log alone, and comes out the same."""

import asyncio
import tempfile
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from click.testing import CliRunner
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from structlog.testing import capture_logs

from aliquot.cli.replay import command
from aliquot.control.decision_log.format import Line, read
from aliquot.control.decision_log.replay import Replay
from aliquot.control.decision_log.writer import DecisionLog
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import (
    Claimed,
    Confirmed,
    Expired,
    Loaded,
    Marked,
    NodeSeen,
    PodForgotten,
    PodSeen,
    QuotasRead,
    TimePassed,
)
from aliquot.dialects import make_dialects
from aliquot.errors import BadConfig, NoRoom
from aliquot.ledger import State
from aliquot.model import Pod
from tests.factories import make_cards, make_node, make_pod
from tests.fakes import FakeClock, answer, cut_after, cut_before, until
from tests.integration.control.cluster_machine import HARDWARE, ClusterMachine
from tests.integration.room import Room


def known_to(cluster: ClusterState) -> Any:
    """Everything that the cluster state knows."""
    snapshot = cluster.snapshot()
    return (
        {cards.node: cards for cards in snapshot.cards},
        {(entry.uid, entry.node): entry for entry in snapshot.entries},
        snapshot.provisional,
        cluster.quotas.entries,
        snapshot.marks,
        snapshot.offered,
        snapshot.bound,
        snapshot.shapes,
        snapshot.counted,
        {node: cluster.fleet.host(node) for node in cluster.totals.nodes},
        {node: cluster.totals.wrong_counts(node) for node in cluster.totals.nodes},
    )


def replayed(path: Path) -> Replay:
    replay = Replay()
    replay.feed(read(path))
    assert replay.difference is None, replay.difference
    return replay


class RecordedMachine(ClusterMachine):
    """The same cluster state, recorded; at the end the log is replayed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "decisions"
        self.log = DecisionLog(self.path, self.cluster, clock=FakeClock())
        self.log.__enter__()

    @rule()
    def go_on_in_a_new_file(self) -> None:
        self.log.begin_file()

    @rule(cards=st.integers(0, 9))
    def change_the_quotas(self, cards: int) -> None:
        self.cluster.apply(QuotasRead(f'{{"default": {{"quota": {{"T4": {cards}, "A100": {cards}}}}}}}'))

    @rule()
    def take_the_quotas_away(self) -> None:
        self.cluster.apply(QuotasRead(None))

    @rule(node=st.sampled_from(["n1", "n2", "n3"]), indexes=st.frozensets(st.integers(0, 2)))
    def mark_cards(self, node: str, indexes: frozenset[int]) -> None:
        self.cluster.apply(Marked(node, sorted(indexes)))

    @rule(now=st.integers(1, 500).map(float))
    def let_time_pass(self, now: float) -> None:
        self.cluster.apply(TimePassed(now))

    @rule(
        node=st.sampled_from(["even", "mixed"]),
        at=st.integers(1, 500).map(float),
        busy=st.lists(st.integers(0, 10).map(lambda tenths: tenths / 10), max_size=3),
        data=st.data(),
    )
    def measure_load(self, node: str, at: float, busy: list[float], data: st.DataObject) -> None:
        uuids = [gpu.uuid for gpu in HARDWARE[node].gpus]
        measured = data.draw(st.frozensets(st.sampled_from(sorted(self.pods)))) if self.pods else frozenset()
        self.cluster.apply(Loaded(node, at, dict(zip(uuids, busy, strict=False)), measured))

    @rule(units=st.integers(1, 6), node_policy=st.sampled_from(["load", "binpack"]))
    def decide_by_load(self, units: int, node_policy: str) -> None:
        asked = {"aliquot.io/gpu-policy": "load", "aliquot.io/node-policy": node_policy}
        demand = self.cluster.demand_of(make_pod("by-load", units, metadata={"annotations": asked}))
        assert demand is not None
        self.cluster.judge(demand)

    @rule(units=st.integers(1, 12))
    def let_a_reservation_expire_under_a_bound_pod(self, units: int) -> None:
        """Its original's record counts from then on."""
        pod = make_pod("reserved", units)
        demand = self.cluster.demand_of(pod)
        assert demand is not None
        judgement = self.cluster.judge(demand)
        node = judgement.best(self.nodes)
        placement = judgement.placement(node) if node else None
        if node is None or placement is None:
            return
        record = dict(demand.dialect.annotations(pod, demand.request, placement, self.nodes[node], 1))
        bound = make_pod("reserved", units, node=node, uid=pod.metadata.uid, metadata={"annotations": record})
        self.pods[pod.metadata.uid] = bound
        self.cluster.apply(Claimed(demand.request, placement, until=1.0))
        self.cluster.apply(PodSeen(bound))
        for uid in self.cluster.apply(Expired(1.0)).expired:
            if (unplaced := self.cluster.unplaced.get(uid)) is not None:
                self.cluster.apply(PodSeen(unplaced))

    def teardown(self) -> None:
        self.log.__exit__(None, None, None)
        assert known_to(replayed(self.path).cluster) == known_to(self.cluster)
        older = Path(f"{self.path}.1")
        if older.exists():
            replayed(older)
        self.folder.cleanup()


TestAnyRecordedCluster = RecordedMachine.TestCase
TestAnyRecordedCluster.settings = settings(max_examples=40, stateful_step_count=25)


# -- one log after another


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


def place(cluster: ClusterState, pod: Pod, node: str = "n1") -> None:
    demand = cluster.demand_of(pod)
    assert demand is not None
    placement = cluster.judge(demand).placement(node)
    assert placement is not None
    cluster.apply(Claimed(demand.request, placement))
    cluster.apply(Confirmed(pod.metadata.uid, node))


def write_a_log(path: Path, *, pods: int = 3) -> ClusterState:
    cluster = ClusterState()
    cluster.apply(NodeSeen(make_node("n1", make_cards())))
    with DecisionLog(path, cluster, clock=FakeClock()):
        for number in range(pods):
            place(cluster, make_pod(f"p{number}", 4))
        cluster.apply(NodeSeen(make_node("n2", make_cards("n2"))))
        with pytest.raises(NoRoom):
            _claim_too_much(cluster)
    return cluster


def _claim_too_much(cluster: ClusterState) -> None:
    demand = cluster.demand_of(make_pod("large", 15))
    assert demand is not None
    placement = cluster.judge(demand).placement("n2")
    assert placement is not None
    place(cluster, make_pod("first", 15), "n2")
    place(cluster, make_pod("second", 15), "n2")
    cluster.apply(Claimed(demand.request, placement))


def run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(map(str, args)))
    structlog.reset_defaults()  # the command's logs went to a stream that is closed by now
    return result.exit_code, result.output


def test_every_decision_comes_out_the_same(path: Path) -> None:
    cluster = write_a_log(path)
    assert known_to(replayed(path).cluster) == known_to(cluster)
    assert run(path) == (0, "6 decisions replayed, all with the same answer\n")


def test_a_decision_that_comes_out_otherwise_is_shown_with_both_placements(path: Path) -> None:
    write_a_log(path)
    first = b'"placement":{"node":"n1","dialect":"gpushare","containers":{"main":[{"uuid":"GPU-n1-0"'
    path.write_bytes(path.read_bytes().replace(first, first.replace(b"n1-0", b"n1-1"), 1))
    code, output = run(path)
    assert code == 1
    assert "1 decisions replayed; the last answer differs: line 5" in output
    assert "then: fits on 1, best n1 (main GPU-n1-1 4096 MiB)" in output
    assert "now:  fits on 1, best n1 (main GPU-n1-0 4096 MiB)" in output


def test_a_claim_that_is_not_what_was_decided_is_a_difference(path: Path) -> None:
    write_a_log(path)
    lines = path.read_bytes().splitlines(keepends=True)
    claim = next(number for number, line in enumerate(lines) if b'"claimed"' in line)
    lines[claim] = lines[claim].replace(b"GPU-n1-0", b"GPU-n1-1")
    path.write_bytes(b"".join(lines))
    code, output = run(path)
    assert code == 1
    assert "then: claim of n1 (main GPU-n1-1 4096 MiB)" in output
    assert "now:  claim of n1 (main GPU-n1-0 4096 MiB)" in output


def test_a_last_line_that_was_torn_is_left_out(path: Path) -> None:
    write_a_log(path)
    path.write_bytes(path.read_bytes()[:-20])
    code, output = run(path)
    assert (code, output) == (0, "6 decisions replayed, all with the same answer\n")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(None, "cannot be read: no such file", id="no file"),
        pytest.param(b"", "is empty: there is nothing to replay", id="an empty file"),
        pytest.param(b"{}\n", "line 1 cannot be read", id="another file"),
        pytest.param(
            b'{"at":1,"event":{"what":"node lost","node":"n1"}}\n', "does not begin with a header", id="no header"
        ),
        pytest.param(
            b'{"at":1,"event":{"what":"header","v":9,"aliquot":"9","prefixes":{}}}\n',
            "has version 9",
            id="a later format",
        ),
        pytest.param(
            b'{"at":1,"event":{"what":"header","v":4,"aliquot":"1","prefixes":{"acme":"acme.example"}}}\n',
            "dialects that are not installed here: acme",
            id="a private dialect that is missing",
        ),
    ],
)
def test_what_cannot_be_replayed_is_said(path: Path, content: bytes | None, why: str) -> None:
    if content is not None:
        path.write_bytes(content)
    code, output = run(path)
    assert code == 2
    assert why in output


def test_the_story_of_one_pod(path: Path) -> None:
    cluster = ClusterState()
    cluster.apply(NodeSeen(make_node("n1", make_cards())))
    with DecisionLog(path, cluster, clock=FakeClock()):
        pod = make_pod("p", 4)
        place(cluster, pod)
        place(cluster, make_pod("other", 4))
        demand = cluster.demand_of(make_pod("p", 99, uid=pod.metadata.uid))
        assert demand is not None
        cluster.judge(demand)
        cluster.apply(PodForgotten(pod.metadata.uid))
    code, output = run(path, "--pod", "default/p")
    assert code == 0
    assert [line.split("  ", 1)[1] for line in output.splitlines()] == [
        "asked (gpushare, tightest/tightest): fits on 1, best n1 (main GPU-n1-0 4096 MiB) because no other node fits",
        "claimed: n1 (main GPU-n1-0 4096 MiB)",
        "the API server accepted the placement on n1",
        "asked (gpushare, tightest/tightest): fits nowhere; 1 refused: request exceeds the node's GPUs even when empty",
        "gone; what it held is free",
    ]


@pytest.mark.parametrize(
    ("pod", "hint"),
    [
        pytest.param("p1", "did you mean default/p1?", id="without its namespace"),
        pytest.param("default/secnd", "did you mean default/second?", id="a slip"),
        pytest.param("elsewhere/x", "it mentions 6 other pods", id="nothing like it"),
    ],
)
def test_a_pod_that_the_log_does_not_know_is_an_error_with_a_hint(path: Path, pod: str, hint: str) -> None:
    write_a_log(path)
    assert run(path, "--pod", pod) == (2, f"aliquot: the log does not mention pod {pod} (NAMESPACE/NAME); {hint}\n")


async def test_who_held_what_at_a_moment(path: Path) -> None:
    cluster, clock = ClusterState(), FakeClock()
    cluster.apply(NodeSeen(make_node("n1", make_cards())))
    with DecisionLog(path, cluster, clock=clock):
        place(cluster, make_pod("early", 4))
        await clock.move(60)
        place(cluster, make_pod("late", 4))
    code, output = run(path, "--at", "2023-11-14T22:30:30Z")
    assert (code, output) == (
        0,
        "bound    default/early  n1 (main GPU-n1-0 4096 MiB)\n1 decisions replayed, all with the same answer\n",
    )
    for text in ("noon", "2023-11-14T22:30:30"):
        assert f"{text!r} is not a time; write it like 2026-" in run(path, "--at", text)[1]
    code, output = run(path, "--at", "2020-01-01T00:00:00Z")
    assert code == 2
    assert "--at 2020-01-01T00:00:00Z: there is nothing to replay; the log begins only at 2023-" in output


def test_a_log_without_decisions_says_so(path: Path) -> None:
    with DecisionLog(path, ClusterState(), clock=FakeClock()):
        pass
    assert run(path) == (0, "the log contains no decision\n")


def test_prefixes_of_dialects_are_those_of_then(path: Path) -> None:
    cluster = ClusterState(make_dialects({"gpushare": "gpu.example"}))
    with DecisionLog(path, cluster, clock=FakeClock()):
        cluster.apply(NodeSeen(make_node("n1", make_cards())))
    assert replayed(path).cluster.dialects["gpushare"].prefix == "gpu.example"


def test_policies_are_those_of_then(path: Path) -> None:
    """The configuration may set others than a dialect's own, and change them while the server runs."""
    dialects = make_dialects()
    cluster = ClusterState(dialects)
    cluster.apply(NodeSeen(make_node("n1", make_cards())))
    with DecisionLog(path, cluster, clock=FakeClock()):
        for policy in ("spread", "tightest", "spread"):
            dialects["gpushare"].gpu_policy = policy
            place(cluster, make_pod(policy, 3))
    assert replayed(path).decisions == 3
    assert known_to(replayed(path).cluster) == known_to(cluster)


async def test_the_log_of_a_control_plane_amid_faults_comes_out_the_same(room: Room, path: Path) -> None:
    await room.add_node()
    pods = [await room.add_pod(f"p{number}", 4) for number in range(6)]
    room.api.script("POST", "/binding$", cut_before, cut_after, answer(409), answer(500))
    with DecisionLog(path, room.plane.cluster, clock=room.clock):
        await asyncio.gather(*(room.commit(pod, "n1") for pod in pods), return_exceptions=True)
        await room.in_sync()
        await room.delete_pod(pods[-1])
        await room.change_node(make_cards(unhealthy=[1]))
        await room.clock.move(71)
        await room.plane.transactions.settle()
    assert known_to(replayed(path).cluster) == known_to(room.plane.cluster)
    assert replayed(path).decisions == 6


# -- files


async def test_a_full_file_is_followed_by_another_and_each_is_whole(path: Path) -> None:
    cluster, clock = ClusterState(), FakeClock()
    cluster.apply(NodeSeen(make_node("n1", make_cards(mib=(10**6,)))))
    with DecisionLog(path, cluster, most_mb=1, clock=clock) as log:
        for number in range(1500):
            place(cluster, make_pod(f"p{number}", 1))
            cluster.apply(PodForgotten(cluster.ledger.entries("n1")[0].uid))
            if number % 100 == 0:
                await until(lambda: not log.waiting)
                await clock.move(10)
    older = Path(f"{path}.1")
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, older.name]
    assert 1_000_000 < older.stat().st_size < 1_200_000, "it was given up when it was full, and no sooner"
    assert known_to(replayed(path).cluster) == known_to(cluster)
    replayed(older)


async def test_what_cannot_be_written_is_said_and_the_next_file_is_whole_again(path: Path) -> None:
    cluster, clock, older = ClusterState(), FakeClock(), Path(f"{path}.1")
    older.mkdir()  # nothing can take its name
    path.write_text("of an earlier process")
    with capture_logs() as told, DecisionLog(path, cluster, clock=clock) as log:
        cluster.apply(NodeSeen(make_node("n1", make_cards())))
        await until(lambda: not log.waiting and told)
        older.rmdir()
        await clock.move(10)
        await until(
            lambda: _places_one_more(cluster) and older.is_file() and path.exists() and "header" in path.read_text()
        )
    assert {line["event"] for line in told} == {"cannot write the decision log"}
    assert known_to(replayed(path).cluster) == known_to(cluster)


def _places_one_more(cluster: ClusterState) -> bool:
    if len(cluster.ledger.all()) < 20:
        place(cluster, make_pod("p", 1))
    return True


def test_a_process_that_is_started_goes_on_in_the_file_of_the_one_before(path: Path) -> None:
    write_a_log(path)
    before = path.read_bytes()
    for _ in range(3):
        cluster = write_a_log(path)
    assert path.read_bytes().startswith(before)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert replayed(path).decisions == 4 * 6
    assert known_to(replayed(path).cluster) == known_to(cluster)


def test_a_line_that_a_kill_tore_is_cut_off_before_the_file_goes_on(path: Path) -> None:
    write_a_log(path)
    path.write_bytes(path.read_bytes() + b'{"at":1,"event":' + b"x" * 100_000)
    cluster = write_a_log(path)
    assert known_to(replayed(path).cluster) == known_to(cluster)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(b"of another program\n", id="no decision log"),
        pytest.param(b'{"at":1,"event":{"what":"header","v":9,"aliquot":"9","prefixes":{}}}\n', id="a later format"),
        pytest.param(
            b'{"at":1,"event":{"what":"header","v":1,"aliquot":"1","prefixes":{}}}', id="torn in its first line"
        ),
        pytest.param(
            b'{"at":1,"event":{"what":"header","v":1,"aliquot":"1","prefixes":{}}}\n' + b" " * 2_000_000, id="full"
        ),
    ],
)
def test_a_file_that_cannot_be_gone_on_with_is_kept_beside_the_new_one(path: Path, before: bytes) -> None:
    path.write_bytes(before)
    with DecisionLog(path, ClusterState(), most_mb=1, clock=FakeClock()):
        pass
    assert Path(f"{path}.1").read_bytes() == before
    assert len(list(read(path))) == 2


def test_the_file_is_for_its_owner_only(path: Path) -> None:
    write_a_log(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("where", "why"),
    [
        pytest.param("no/folder", "there is no folder", id="no folder"),
        pytest.param("", "it is a folder", id="a folder"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_at_the_start(tmp_path: Path, where: str, why: str) -> None:
    with pytest.raises(BadConfig, match=rf"decisionLog.file: .* cannot be written: {why}"):
        DecisionLog(tmp_path / where, ClusterState()).__enter__()


async def test_a_reservation_that_expires_under_a_bound_pod_is_replayed(room: Room, path: Path) -> None:
    """From then on the annotations of the pod's original count."""
    cluster, keys = room.plane.cluster, {"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "3"}
    pod = make_pod("p", 3, node="n1", uid="p", metadata={"annotations": keys})
    await room.add_node()
    demand = cluster.demand_of(pod)
    assert demand is not None
    placement = cluster.judge(demand).placement("n1")
    assert placement is not None
    with DecisionLog(path, cluster, clock=FakeClock()):
        cluster.apply(Claimed(demand.request, placement, until=room.clock.monotonic()))
        cluster.apply(PodSeen(pod))
        room.plane.reservations.expire()
    assert [entry.state for entry in cluster.ledger.all()] == [State.BOUND]
    assert known_to(replayed(path).cluster) == known_to(cluster)


def test_nothing_is_recorded_that_changes_nothing(path: Path) -> None:
    cluster = ClusterState()
    node, pod, waiting = make_node("n1", make_cards()), make_pod("plain", None, node="n1"), make_pod("waits")
    with DecisionLog(path, cluster, clock=FakeClock()):
        for _ in range(3):
            cluster.apply(NodeSeen(node))
            cluster.apply(PodSeen(pod))
            cluster.apply(PodSeen(waiting))
            cluster.apply(PodForgotten("nobody"))
            cluster.drop_claim("nobody", "n1")
            cluster.apply(Expired(1.0))
    told = [msgspec.json.encode(line.event).split(b'"')[3] for _, line in read(path)]
    assert told == [b"header", b"begun", b"node seen", b"host taken", b"pod seen"]


def test_lines_are_plain_json(path: Path) -> None:
    write_a_log(path)
    assert all(isinstance(msgspec.json.decode(line, type=Line), Line) for line in path.read_bytes().splitlines())


@pytest.mark.parametrize("then", ["asked again", "bound by others"])
async def test_a_part_that_was_kept_for_a_pod_is_no_difference(room: Room, path: Path, then: str) -> None:
    """Decisions made meanwhile see the part as taken, by the very pod that gets it."""
    plane = room.plane
    await room.add_node(make_cards(mib=(15360,)))
    with DecisionLog(path, plane.cluster, clock=FakeClock()):
        pod = await room.add_pod("p", 15)
        demand = plane.cluster.demand_of(pod)
        assert demand is not None
        plane.reservations.reserve(pod, "n1", 30.0)
        assert plane.cluster.judge(demand).placement("n1") is None
        if then == "asked again":
            plane.reservations.reserve(pod, "n1", 30.0)
        else:
            target = {"kind": "Node", "name": "n1"}
            meta = {"name": "p", "namespace": "default", "uid": pod.metadata.uid}
            await room.client.bind({"kind": "Binding", "metadata": meta, "target": target}, timeout=20)
            await room.in_sync()
            assert plane.cluster.judge(demand).placement("n1") is None
            await until(lambda: not plane.cluster.unplaced, "it is placed late", passing=room.clock)
            await room.in_sync()
        held = plane.cluster.snapshot().entries
    replay = replayed(path)
    assert replay.cluster.snapshot().entries == held


def test_the_log_of_a_server_that_follows_again_can_be_replayed(folder: Path) -> None:
    """It gives back whatever it has kept, at no point in time that JSON could tell."""
    cluster = ClusterState()
    with DecisionLog(folder / "log", cluster):
        cluster.apply(NodeSeen(make_node("n1", make_cards())))
        demand = cluster.demand_of(make_pod("p", 3))
        assert demand is not None
        cluster.apply(Claimed(demand.request, cluster.fit(demand, "n1"), 30.0))
        cluster.apply(Expired(inf))
        cluster.apply(NodeSeen(make_node("n2", make_cards("n2"))))
    replay = Replay()
    replay.feed(read(folder / "log"))
    assert (replay.difference, replay.decisions) == (None, 1)


def test_load_is_logged_before_decisions_that_depend_on_it_and_not_before_others(path: Path) -> None:
    cluster = ClusterState()
    cluster.apply(NodeSeen(make_node("n1", make_cards())))
    by_load = {"aliquot.io/gpu-policy": "load"}
    with DecisionLog(path, cluster, clock=FakeClock()):
        cluster.apply(TimePassed(100.0))
        cluster.apply(Loaded("n1", 100.0, {"GPU-n1-0": 0.9, "GPU-n1-1": 0.2}))
        place(cluster, other := make_pod("other", 4))
        measured = frozenset({other.metadata.uid})
        cluster.apply(Loaded("n1", 100.0, {"GPU-n1-0": 0.1, "GPU-n1-1": 0.2}, measured))
        place(cluster, make_pod("coolest", 4, metadata={"annotations": by_load}))
        place(cluster, make_pod("again", 4, metadata={"annotations": by_load}))
    assert path.read_text().count('"what":"loaded"') == 1
    assert replayed(path).decisions == 3
    held = {entry.owner.pod.split("/")[1]: set(entry.charges) for entry in cluster.ledger.all()}
    assert held["coolest"] == {"GPU-n1-0"}
    assert held["again"] == {"GPU-n1-1"}, "what was placed a moment ago counts as busy"


def test_a_file_begins_with_the_load_and_the_time(path: Path) -> None:
    cluster = ClusterState()
    cluster.apply(NodeSeen(make_node("n1", make_cards())))
    cluster.apply(TimePassed(100.0))
    cluster.apply(Loaded("n1", 90.0, {"GPU-n1-0": 0.9, "GPU-n1-1": 0.2}, frozenset({"u"})))
    with DecisionLog(path, cluster, clock=FakeClock()):
        place(cluster, make_pod("coolest", 4, metadata={"annotations": {"aliquot.io/gpu-policy": "load"}}))
    replay = replayed(path)
    assert replay.cluster.snapshot().loads == cluster.snapshot().loads
    assert replay.cluster.snapshot().now == 100.0
