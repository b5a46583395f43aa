"""Cards that a ConfigMap names as unhealthy get no new pods; what runs there goes on."""

from pathlib import Path

import pytest

from aliquot.control.decision_log.format import read
from aliquot.control.decision_log.replay import Replay
from aliquot.control.decision_log.writer import DecisionLog
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.kube import Client
from tests.factories import make_cards
from tests.fakes import FakeClock, ScriptedApi
from tests.integration.control.test_audit import audit_of
from tests.integration.control.test_quota_map import is_seen, put_map
from tests.integration.room import Room

NAME = "unhealthy-gpu-n1"


async def mark(room: Room, text: str) -> None:
    put_map(room.api, NAME, {"gpus": text})
    await is_seen(room.api, room.plane.unhealthy_maps.informer, NAME)


async def unmark(room: Room) -> None:
    room.api.registry.delete(resources.CONFIG_MAPS, "kube-system", NAME, DeleteRequest())
    await is_seen(room.api, room.plane.unhealthy_maps.informer, NAME)


def healthy(room: Room, node: str = "n1") -> list[int]:
    return [gpu.index for gpu in room.plane.cluster.cards(node).gpus if gpu.healthy]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("0", [1], id="one"),
        pytest.param("0,1", [], id="all"),
        pytest.param(" 1 , 7", [0], id="one that is not there"),
        pytest.param("", [0, 1], id="none"),
        pytest.param("broken", [0, 1], id="no index takes no card away"),
    ],
)
async def test_marked_cards_are_not_sold(room: Room, text: str, left: list[int]) -> None:
    await room.add_node()
    await mark(room, text)
    assert healthy(room) == left
    pods = [await room.add_pod(f"p{number}", 15) for number in range(len(left))]
    for pod in pods:
        await room.commit(pod, "n1")
    assert room.used() == dict.fromkeys(left, 15)


async def test_what_runs_on_a_marked_card_stays(room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    await room.commit(await room.add_pod(), "n1")
    await mark(room, "0")
    assert room.used() == {0: 3}


@pytest.mark.parametrize("how", ["another text", "deleted"])
async def test_a_card_is_sold_again_when_its_mark_goes(room: Room, how: str) -> None:
    await room.add_node(make_cards(mib=(15360,) * 3, unhealthy=[2]))
    await mark(room, "0,2")
    assert healthy(room) == [1]
    await (mark(room, "1") if how == "another text" else unmark(room))
    assert healthy(room) == ([0] if how == "another text" else [0, 1]), "what the node itself tells still holds"


async def test_marks_of_a_node_that_comes_later_count(room: Room) -> None:
    await mark(room, "1")
    await room.add_node()
    assert healthy(room) == [0]
    await room.remove_node("n1")
    await room.add_node(make_cards(mib=(15360,) * 3))
    assert healthy(room) == [0, 2]


async def test_an_inventory_that_changes_keeps_its_marks(room: Room) -> None:
    await room.add_node()
    await mark(room, "0")
    await room.change_node(make_cards(unhealthy=[1]))
    assert healthy(room) == []
    await unmark(room)
    assert healthy(room) == [0]


async def test_other_config_maps_mean_nothing(room: Room) -> None:
    await room.add_node()
    put_map(room.api, "n1", {"gpus": "0"})
    put_map(room.api, "gpuquota", {"gpus": "0"})
    put_map(room.api, NAME, {"cards": "0"})
    await is_seen(room.api, room.plane.unhealthy_maps.informer, NAME)
    assert healthy(room) == [0, 1]


async def test_a_marked_card_is_no_drift(room: Room) -> None:
    await room.add_node()
    await mark(room, "0")
    assert await audit_of(room).look() == []
    assert healthy(room) == [1]


async def test_marks_can_be_replayed(scripted: ScriptedApi, client: Client, clock: FakeClock, tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    async with Room(scripted, client, clock) as room:
        await room.add_node()
        await mark(room, "1")
        with DecisionLog(path, room.plane.cluster, clock=clock):
            await room.commit(await room.add_pod("first", 15), "n1")
            await mark(room, "0")
            await room.commit(await room.add_pod("second", 15), "n1")
            await unmark(room)
        expected = room.plane.cluster.snapshot()
    replay = Replay()
    replay.feed(read(path))
    assert replay.difference is None
    assert replay.decisions == 2
    assert replay.cluster.snapshot().cards == expected.cards
    assert replay.cluster.cards("n1").gpus == make_cards().gpus


async def test_a_list_that_no_node_has_keeps_the_last_marks_and_people_are_told(room: Room) -> None:
    await room.add_node()
    await mark(room, "1")
    await mark(room, "0," * 4096)
    assert healthy(room) == [0]
    notes = [note for note in room.plane.notes() if NAME in note]
    assert notes == [f"ConfigMap kube-system/{NAME} cannot be used, so the last known cards stay in force"]
    await mark(room, "0")
    assert healthy(room) == [1]
    assert not any(NAME in note for note in room.plane.notes())
