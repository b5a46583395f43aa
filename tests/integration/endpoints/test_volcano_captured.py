"""Captured requests of four real scheduler versions, if they are available."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.endpoints.volcano import volcano_routes
from aliquot.endpoints.volcano_wire import PredicateCall, PredicateFormat, read
from tests.factories import make_cards, pod_manifest
from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.endpoints.volcano import PREFIX
from tests.integration.endpoints.wire import opened
from tests.integration.room import Room

CAPTURED = Path(__file__).parents[4] / "shared" / "data" / "volcano"
FORMATS = {
    "1.7.0": PredicateFormat.MESSAGE,
    "1.8.2": PredicateFormat.LIST,
    "1.10.0": PredicateFormat.CODE,
    "1.14.1": PredicateFormat.CODE,
}

pytestmark = pytest.mark.skipif(not CAPTURED.is_dir(), reason="no captured requests here")


def body(version: str, verb: str) -> bytes:
    return (CAPTURED / f"{version}-{verb}.json").read_bytes()


@pytest.fixture
async def volcano(room: Room) -> AsyncIterator[Endpoint]:
    """The two nodes in the requests."""
    for name in ("n00000", "n00001"):
        await room.add_node(make_cards(name))
    async with opened(room, volcano_routes(room.plane, "admission", None, PREFIX)) as endpoint:
        yield endpoint


@pytest.mark.parametrize("version", FORMATS)
def test_every_version_is_recognized(version: str) -> None:
    assert read(body(version, "vpredicates"), PredicateCall).answer_format is FORMATS[version]


@pytest.mark.parametrize("version", FORMATS)
async def test_a_captured_predicate_is_answered(volcano: Endpoint, version: str) -> None:
    fits: dict[PredicateFormat, Any] = {
        PredicateFormat.MESSAGE: {"errorMessage": ""},
        PredicateFormat.LIST: {"status": []},
        PredicateFormat.CODE: {"status": "", "code": 0},
    }
    reply = await volcano.send("POST", f"{PREFIX}/vpredicates", body(version, "vpredicates"))
    assert reply.json == fits[FORMATS[version]]


@pytest.mark.parametrize("version", FORMATS)
async def test_captured_nodes_get_scores(volcano: Endpoint, version: str) -> None:
    asked = body(version, "vprioritize")
    names = {node["Name"] for node in msgspec.json.decode(asked)["nodes"]}
    answer = (await volcano.send("POST", f"{PREFIX}/vprioritize", asked)).json
    assert answer["errorMessage"] == ""
    assert answer["nodeScore"].keys() == names


async def test_a_captured_allocation_makes_a_reservation(volcano: Endpoint, room: Room) -> None:
    call = msgspec.json.decode(body("1.14.1", "vallocate"))
    pod = call["task"]["Pod"]
    made = await room.put_pod(pod_manifest(pod["metadata"]["name"], containers=pod["spec"]["containers"]))
    call["task"]["UID"] = pod["metadata"]["uid"] = made["metadata"]["uid"]
    asked = msgspec.json.encode(call)
    assert (await volcano.send("POST", f"{PREFIX}/vallocate", asked)).json == {"errorMessage": ""}
    assert len(room.entries("n00000")) == 1
    assert (await volcano.send("POST", f"{PREFIX}/vdeallocate", asked)).json == {"errorMessage": ""}
    assert room.entries("n00000") == {}
