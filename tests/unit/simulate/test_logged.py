"""Worlds out of decision logs."""

from pathlib import Path

from aliquot.control.decision_log.writer import DecisionLog
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import NodeLost, NodeSeen
from aliquot.simulate.logged import read_log
from tests.factories import make_cards, make_node
from tests.fakes import FakeClock


def test_nodes_that_are_gone_at_the_end_are_left_out(tmp_path: Path) -> None:
    cluster, path = ClusterState(), tmp_path / "decisions.jsonl"
    nodes = {name: NodeSeen(make_node(name, make_cards(name))) for name in ("back", "gone", "stays")}
    for seen in nodes.values():
        cluster.apply(seen)
    with DecisionLog(path, cluster, clock=FakeClock()):
        for name in ("back", "gone"):
            cluster.apply(NodeLost(name))
        cluster.apply(nodes["back"])
    assert [node.name for node in read_log(path).nodes] == ["back", "stays"]
