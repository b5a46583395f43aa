"""The benchmark of extenders measures what it says: the whole server, asked as kube-scheduler asks."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench import extender
from bench.extending import half_full
from bench.extending.processes import Served

NODES = 12
SIZE = extender.Size((NODES,), rounds=3, seconds=0.1)

Sent = Callable[[Served, list[dict[str, Any]]], extender.Bodies]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("bench") / "server"
    with extender.server(NODES, folder) as ours:
        yield ours


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        pytest.param(extender.by_name, lambda body: body["NodeNames"], id="names"),
        pytest.param(
            extender.by_node,
            lambda body: [node["metadata"]["name"] for node in body["Nodes"]["items"]],
            id="whole nodes",
        ),
    ],
)
def test_three_nodes_of_four_pass_and_are_prioritized(server: Served, sent: Sent, named: Callable[[Any], Any]) -> None:
    bodies = [[msgspec.json.decode(body) for body in of_pod] for of_pod in sent(server, half_full.nodes(NODES))]
    assert len({body["Pod"]["metadata"]["uid"] for body, _ in bodies}) == len(bodies)
    for filtered, prioritized in bodies:
        assert len(named(filtered)) == NODES
        assert len(named(prioritized)) == NODES * 3 // 4


@pytest.mark.parametrize("clients", [1, 3])
def test_every_turn_has_a_cost_and_a_latency(server: Served, clients: int) -> None:
    turns = extender.measured([server], extender.by_name(server, half_full.nodes(NODES)), clients, SIZE)
    assert [len(of_server) for of_server in turns] == [SIZE.rounds]
    assert all(turn.latency > 0 for turn in turns[0])
    assert sum(turn.cpu for turn in turns[0]) > 0, "of a single call the kernel may tell only when it is over"
