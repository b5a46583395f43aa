"""Times can change under a running control plane."""

import asyncio

import pytest
from msgspec.structs import replace

from aliquot.kube import NoAnswer
from tests.fakes import held
from tests.integration.room import Room


async def test_the_next_commit_has_the_new_budget(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    release = asyncio.Event()
    room.api.script("POST", "/binding$", held(asyncio.Event(), release))
    settings = room.plane.settings
    room.plane.reconfigure(replace(settings, commit=replace(settings.commit, budget=0.01)))
    with pytest.raises(NoAnswer):
        await room.commit(pod, "n1")
    release.set()
