"""Observe mode: where waiting pods would go is told once, and again when it changes."""

import pytest
import structlog

from aliquot.doors.observing import Observer
from tests.factories import container_manifest, make_cards
from tests.integration.room import Room


def told(observer: Observer) -> list[str]:
    """What one look tells: of which pod, and the node or why it waits."""
    with structlog.testing.capture_logs() as lines:
        observer.look()
    return [f"{line['pod']}: {line.get('node') or line['why']}" for line in lines]


async def test_a_verdict_is_told_once_and_again_when_it_changes(room: Room) -> None:
    observer = Observer(room.plane)
    await room.add_node(make_cards("n1", mib=(15360,)))
    pod = await room.add_pod("p", 10)
    assert told(observer) == ["default/p: n1"]
    assert told(observer) == []
    holder = await room.add_pod("holder", 10)
    await room.commit(holder, "n1")
    await room.in_step()
    (waits,) = told(observer)
    assert waits.startswith("default/p: 0/1 nodes are available: 1 ")
    assert told(observer) == []
    await room.add_node(make_cards("n2", mib=(15360,)))
    assert told(observer) == ["default/p: n2"]
    await room.delete_pod(pod)
    assert told(observer) == []


async def test_the_cards_are_told_too(room: Room) -> None:
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
async def test_a_pod_that_does_not_wait_for_a_gpu_is_nothing_to_tell_of(room: Room, fields: dict[str, object]) -> None:
    await room.add_node()
    await room.add_pod("p", **fields)
    assert told(Observer(room.plane)) == []


async def test_a_demand_that_cannot_be_read_is_told(room: Room) -> None:
    await room.add_node()
    await room.add_pod("p", 3, metadata={"labels": {"aliyun.com/gpu-count": "2"}})
    (waits,) = told(Observer(room.plane))
    assert waits.startswith("default/p: ")
    assert "aliyun.com/gpu-count" in waits
