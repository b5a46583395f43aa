"""A control plane that runs for months keeps nothing of nodes and pods that have come and gone."""

from typing import Any

import pytest

from aliquot.dialects.gpushare import IDX
from aliquot.errors import AliquotError
from aliquot.kube import PODS
from tests.factories import make_cards
from tests.fakes import answer, cut_before
from tests.integration.room import Room


def kept(holder: object) -> int:
    """How many items an object keeps in the containers among its attributes."""
    return sum(len(value) for value in vars(holder).values() if _is_container(value))


def _is_container(value: Any) -> bool:
    return hasattr(value, "__len__") and not hasattr(value, "shape") and not isinstance(value, str)


def kept_by(room: Room) -> int:
    plane = room.plane
    cluster = plane.cluster
    kept_in_books = (cluster, cluster.totals, cluster.adoption, cluster.ledger, cluster.fleet)
    holders = (plane, *kept_in_books, plane.committer, plane.pods, plane.nodes)
    return sum(map(kept, holders))


async def come_and_go(room: Room, name: str) -> None:
    """A node, and pods that are bound there, over-sell it, wait, get no answer, or name a node that never was."""
    await room.add_node(make_cards(name))
    bound = [await room.add_pod(f"{name}-{number}", 10) for number in range(2)]
    for pod in bound:
        await room.commit(pod, name)
    more = [
        await room.add_pod(f"{name}-more", 10, metadata={"annotations": {IDX: "0"}}, node=name),
        await room.add_pod(f"{name}-waits", 16),
        await room.add_pod(f"{name}-ghost", node=f"ghost-{name}"),
        await room.add_pod(f"{name}-open", 2),
    ]
    room.api.script("POST", "/binding$", answer(409, message="busy"), cut_before)
    for _ in range(2):
        with pytest.raises(AliquotError):
            await room.commit(more[-1], name)
    if name.endswith("1"):
        await room.remove_node(name)
    for pod in (*bound, *more):
        await room.client.delete(PODS, pod.metadata.name, "default", grace=0)
    await room.in_sync()
    await room.plane.transactions.settle()
    if not name.endswith("1"):
        await room.remove_node(name)


async def test_nothing_is_kept_of_nodes_and_pods_that_are_gone(room: Room) -> None:
    for number in range(2):
        await come_and_go(room, f"first-{number}")
    after_two = kept_by(room)
    for number in range(6):
        await come_and_go(room, f"later-{number}")
        assert room.plane.pods_on(f"later-{number}") == []
    assert kept_by(room) == after_two
