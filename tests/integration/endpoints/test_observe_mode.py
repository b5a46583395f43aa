"""Observe mode logs where a waiting pod would go, once, and again when that changes."""

from pathlib import Path

import pytest
import structlog

from aliquot.control.decision_log.format import read
from aliquot.control.decision_log.writer import DecisionLog
from aliquot.control.loops.observer import Observer
from aliquot.control.state.events import Decided
from aliquot.dialects.gpushare import IDX
from tests.factories import container_manifest, make_cards
from tests.integration.room import Room


def logged(observer: Observer) -> list[str]:
    """What one pass logs: the pod, and its node or why it waits."""
    with structlog.testing.capture_logs() as lines:
        observer.look()
    return [f"{line['pod']}: {line.get('node') or line['why']}" for line in lines]


async def test_a_decision_is_logged_once_and_again_when_it_changes(room: Room) -> None:
    observer = Observer(room.plane)
    await room.add_node(make_cards("n1", mib=(15360,)))
    pod = await room.add_pod("p", 10)
    assert logged(observer) == ["default/p: n1"]
    assert logged(observer) == []
    holder = await room.add_pod("holder", 10)
    await room.commit(holder, "n1")
    await room.in_sync()
    (waits,) = (line for line in logged(observer) if "holder" not in line)
    assert waits.startswith("default/p: 0/1 nodes are available: 1 ")
    assert logged(observer) == []
    await room.add_node(make_cards("n2", mib=(15360,)))
    assert logged(observer) == ["default/p: n2"]
    await room.delete_pod(pod)
    assert logged(observer) == []


async def test_a_pod_bound_between_two_passes_is_judged_as_if_it_were_unbound(room: Room) -> None:
    observer = Observer(room.plane)
    await room.add_node(make_cards("n1", mib=(15360,)))
    await room.add_node(make_cards("n2", mib=(15360,)))
    await room.add_pod("early", 5, node="n1", metadata={"annotations": {IDX: "0"}})
    assert logged(observer) == []
    pod = await room.add_pod("p", 15, node="n2", metadata={"annotations": {IDX: "0"}})
    before = room.plane.cluster.snapshot()
    with structlog.testing.capture_logs() as lines:
        observer.look()
        observer.look()
    (line,) = lines
    assert line["event"] == "would have placed"
    assert (line["pod"], line["bound_to"], line["node"]) == (pod.key, "n2", "n2"), "n1 has no room for it"
    assert line["cards"]
    assert room.plane.cluster.snapshot() == before
    assert all(not room.plane.cluster.totals.wrong_counts(node) for node in ("n1", "n2"))


async def test_a_pod_bound_where_we_see_no_room_is_logged_with_the_reason(room: Room) -> None:
    observer = Observer(room.plane)
    await room.add_node(make_cards("n1", mib=(15360,)))
    observer.look()
    await room.add_pod("p", 99, node="n1")
    with structlog.testing.capture_logs() as lines:
        observer.look()
    (line,) = lines
    assert (line["event"], line["bound_to"]) == ("would have waited", "n1")
    assert line["why"].startswith("0/1 nodes are available: 1 ")


async def test_a_pod_logged_while_it_waited_is_not_logged_again_when_bound(room: Room) -> None:
    observer = Observer(room.plane)
    await room.add_node(make_cards("n1", mib=(15360,)))
    pod = await room.add_pod("p", 10)
    assert logged(observer) == ["default/p: n1"]
    await room.commit(pod, "n1")
    await room.in_sync()
    assert logged(observer) == []


async def test_a_pass_is_one_decision_of_the_decision_log(room: Room, tmp_path: Path) -> None:
    await room.add_node()
    await room.add_pod("p", 3)
    log = tmp_path / "decisions"
    with DecisionLog(log, room.plane.cluster, clock=room.clock):
        logged(Observer(room.plane))
    assert sum(isinstance(line.event, Decided) for _, line in read(log)) == 1


async def test_the_cards_are_logged_too(room: Room) -> None:
    cards = await room.add_node(make_cards("n1", mib=(15360,)))
    await room.add_pod("p", 10)
    with structlog.testing.capture_logs() as lines:
        Observer(room.plane).look()
    assert [line["cards"] for line in lines] == [[cards.gpus[0].uuid]]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"gpu_mem": 3, "node": "n1"}, id="bound"),
        pytest.param({"gpu_mem": 3, "schedulingGates": [{"name": "later"}]}, id="gated"),
        pytest.param({"containers": [container_manifest(gpu_mem=None)]}, id="without GPU"),
    ],
)
async def test_a_pod_that_waits_for_no_gpu_is_not_logged(room: Room, fields: dict[str, object]) -> None:
    await room.add_node()
    await room.add_pod("p", **fields)
    assert logged(Observer(room.plane)) == []


async def test_an_unreadable_demand_is_logged(room: Room) -> None:
    await room.add_node()
    await room.add_pod("p", 3, metadata={"labels": {"aliyun.com/gpu-count": "2"}})
    (waits,) = logged(Observer(room.plane))
    assert waits.startswith("default/p: ")
    assert "aliyun.com/gpu-count" in waits
