"""Labels that the API server did not copy from a Binding, as before Kubernetes 1.35, are added once by who leads."""

from typing import Any

import pytest

from aliquot.control.leadership.leadership import Leadership
from aliquot.control.placing.labels import Labeller
from aliquot.embedded.api import resources
from aliquot.model import Pod
from tests.factories import container_manifest
from tests.fakes import Seen, answer
from tests.integration.room import Room
from tests.settings import server_config

ASSUMED = "elastic-gpu/assume"
ELASTIC = [container_manifest(gpu_mem=None) | {"resources": {"limits": {"elastic-gpu/gpu-percent": "20"}}}]


def labeller_of(room: Room, *, alone: bool = True) -> Labeller:
    plane, settings = room.plane, server_config(lease__enabled=not alone)
    leadership = Leadership(plane.client, plane.clock, settings, plane.pods.refresh)
    return Labeller(plane.client, plane.cluster, plane.pods, leadership, plane.clock)


def patches(room: Room) -> list[Seen]:
    return [seen for seen in room.api.writes() if seen.method == "PATCH"]


async def bound_without_labels(room: Room) -> Pod:
    await room.add_node()
    pod = await room.add_pod(containers=ELASTIC)
    await room.commit(pod, "n1")
    room.api.registry.rewrite(resources.PODS, "default", "p", lambda obj: obj | {"metadata": _without(obj["metadata"])})
    await room.in_sync()
    return pod


def _without(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != "labels"}


async def test_labels_that_are_missing_are_added_once(room: Room) -> None:
    pod = await bound_without_labels(room)
    for _ in range(2):
        await labeller_of(room).look()
        await room.in_sync()
    assert room.api_pod(pod)["metadata"]["labels"] == {ASSUMED: "true"}
    (patch,) = patches(room)
    assert patch.body == {"metadata": {"labels": {ASSUMED: "true"}, "uid": pod.metadata.uid}}


async def test_a_label_that_is_refused_is_tried_again_at_the_next_look(room: Room) -> None:
    pod = await bound_without_labels(room)
    room.api.script("PATCH", "/pods/p$", answer(403))
    for _ in range(2):
        await labeller_of(room).look()
    assert room.api_pod(pod)["metadata"]["labels"] == {ASSUMED: "true"}


async def test_nothing_is_written_where_nothing_is_missing(room: Room) -> None:
    await room.add_node()
    for name, containers in (("labelled", ELASTIC), ("unlabelled", None)):
        await room.commit(await room.add_pod(name, containers=containers), "n1")
    await room.in_sync()
    await labeller_of(room).look()
    assert patches(room) == []


@pytest.mark.parametrize("change", ["follows", "ended", "theirs"])
async def test_nothing_is_written_by_who_does_not_lead_nor_on_pods_that_ended_or_that_others_placed(
    room: Room, change: str
) -> None:
    pod = await bound_without_labels(room)
    if change == "ended":
        await room.report(pod, phase="Succeeded")
    if change == "theirs":
        await room.annotate(pod, **{"aliquot.io/placement": None})  # type: ignore[arg-type]
    before = len(patches(room))
    await labeller_of(room, alone=change != "follows").look()
    assert len(patches(room)) == before
