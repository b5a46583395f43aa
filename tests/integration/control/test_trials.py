"""A trial answers as if it were true, and leaves no trace."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed, HostTaken, Marked, NodeSeen, QuotasRead, StateEvent
from aliquot.control.state.trial import Trial
from aliquot.dialects import Demand
from aliquot.ledger import Owner
from aliquot.model import Charge, Host, Placement
from tests.factories import container_manifest, make_cards, make_node, make_pod

NODES = ("n1", "n2")
MIB = 15360


class Kept:
    """What a recorder was told."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def record(self, event: Any) -> None:
        self.events.append(event)


def a_cluster(*claims: tuple[str, int]) -> ClusterState:
    """Two nodes of two cards; each claim is a pod's UID and its units of memory. Every other pod is shown as bound."""
    cluster = ClusterState()
    for node in NODES:
        cluster.apply(NodeSeen(make_node(node, make_cards(node, mib=(MIB, MIB)))))
    cluster.apply(QuotasRead('{"default": {"memory": {"T4": "100Gi"}}}'))
    for number, (uid, units) in enumerate(claims):
        asked = a_demand(cluster, uid, units)
        judgement = cluster.judge(asked)
        best = judgement.best()
        placement = judgement.placement(best) if best else None
        if placement is not None:
            cluster.apply(Claimed(asked.request, placement))
            if number % 2:
                cluster.apply(HostTaken(uid, placement.node, Host(2000, 512)))
    return cluster


def a_demand(cluster: ClusterState, uid: str, units: int) -> Demand:
    container = container_manifest(resources={"limits": {"aliyun.com/gpu-mem": units, "cpu": units}})
    asked = cluster.demand_of(make_pod(uid, uid=uid, containers=[container]))
    assert asked is not None
    return asked


def known(cluster: ClusterState) -> Any:
    """Everything that a trial must leave as it was."""
    ledger, totals = cluster.ledger, cluster.totals
    return (
        sorted(ledger.all(), key=lambda entry: (entry.uid, entry.node)),
        [(ledger.used(node), ledger.version(node), totals.wrong_counts(node)) for node in NODES],
        [cluster.fleet.host(node) for node in NODES],
        ledger.changes,
        ledger.unbound_of("default"),
        totals.usage.of("default"),
        totals.in_trial,
    )


UIDS = st.sampled_from("abcdef")
STEPS = st.one_of(
    st.tuples(st.just("remove"), UIDS, st.none()),
    st.tuples(st.just("place"), UIDS, st.integers(1, 15)),
    st.tuples(st.just("charge"), st.sampled_from(NODES), st.integers(1, 20000)),
    st.tuples(st.just("checkpoint"), st.none(), st.none()),
    st.tuples(st.just("rollback"), st.none(), st.none()),
)


@settings(max_examples=60)
@given(claims=st.lists(st.tuples(UIDS, st.integers(1, 15)), max_size=5), steps=st.lists(STEPS, max_size=12))
def test_whatever_is_tried_is_rolled_back(claims: list[tuple[str, int]], steps: list[tuple[str, Any, Any]]) -> None:
    cluster = a_cluster(*claims)
    before = known(cluster)
    with cluster.trial() as trial:
        marks: list[tuple[int, Any]] = []
        for what, subject, size in steps:
            if what == "checkpoint":
                marks.append((trial.checkpoint(), cluster.ledger.used("n1")))
            elif what == "rollback" and marks:
                mark, used = marks.pop()
                trial.rollback(mark)
                assert cluster.ledger.used("n1") == used
            else:
                step(cluster, trial, what, subject, size)
    assert known(cluster) == before


def step(cluster: ClusterState, trial: Trial, what: str, subject: str, size: int) -> None:
    if what == "remove":
        trial.remove(subject)
        assert not cluster.ledger.nodes_of(subject)
        assert not cluster.totals.hosts.node_of(subject)
    elif what == "charge":
        guest = a_demand(cluster, "guest", size % 15 + 1).request
        left = cluster.totals.host_left(subject).cpu
        trial.charge(subject, {f"GPU-{subject}-0": Charge(mib=size, shares=1)}, guest)
        assert cluster.fleet.host(subject).cpu == max(0, left - guest.host.cpu)
    elif what == "place":
        asked = a_demand(cluster, subject, size)
        placement = cluster.judge(asked).placement("n1")
        if placement is not None and trial.take(asked.request, placement):
            assert cluster.ledger.entry(subject, "n1") is not None


def test_questions_see_what_is_tried() -> None:
    cluster = a_cluster(("a", 15), ("b", 15), ("c", 15), ("d", 15))
    asked = a_demand(cluster, "e", 15)
    assert cluster.judge(asked).best() is None
    with cluster.trial(without="a"):
        assert cluster.judge(asked).best() is not None
        assert cluster.explain(asked).fits
    assert cluster.judge(asked).best() is None


def test_nothing_is_recorded_and_nobody_is_told_of_room() -> None:
    cluster, kept, openings = a_cluster(("a", 15)), Kept(), list[Any]()
    cluster.recorder = kept
    cluster.freed.subscribe(openings.append)
    with cluster.trial(without="a"):
        cluster.judge(a_demand(cluster, "e", 15))
    assert (kept.events, openings) == ([], [])


def test_only_a_card_that_is_really_over_committed_is_an_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    cluster, too_much = a_cluster(), {"GPU-n1-0": Charge(mib=2 * MIB, shares=1)}
    with cluster.trial() as trial:
        trial.charge("n1", too_much)
    assert "over-committed" not in capsys.readouterr().out
    cluster.totals.adopt(Owner("a"), Placement("n1", "", {}), too_much)
    assert "over-committed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(NodeSeen(make_node("n3", make_cards("n3"))), id="a node"),
        pytest.param(Marked("n1", [0]), id="a mark"),
    ],
)
def test_an_event_during_a_trial_is_a_fault_of_the_caller(event: StateEvent) -> None:
    cluster = a_cluster()
    with cluster.trial(), pytest.raises(AssertionError, match="rolled back"):
        cluster.apply(event)


def test_a_trial_inside_a_trial_is_a_fault_of_the_caller() -> None:
    cluster = a_cluster()
    with cluster.trial(), pytest.raises(AssertionError, match="checkpoint"), cluster.trial():
        pass
