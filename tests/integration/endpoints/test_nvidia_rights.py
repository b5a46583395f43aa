"""The nvidia endpoint's verbs as a part of the query API: `create` on `schedule`, by the caller's own rights."""

from typing import Any

import msgspec
import pytest

from aliquot.embedded.api import resources
from aliquot.endpoints.asgi import Call, Caller, CallerKind, DecisionHandler, OwnRightsHandler, Routes
from aliquot.endpoints.nvidia import NvidiaEndpoint
from aliquot.endpoints.own_rights import OwnRights
from aliquot.endpoints.query.api import QueryApi
from tests.fakes import answer
from tests.integration.endpoints.test_nvidia import PREFIX, wanting
from tests.integration.endpoints.wire import cards_of_models, names_call
from tests.integration.room import Room

pytestmark = pytest.mark.embedded_only("the users are the test's own")

SCHEDULER = Caller("system:kube-scheduler", frozenset({CallerKind.SCHEDULER}))
STRANGER = Caller("jane", frozenset())
REPLICA = Caller("replica", frozenset({CallerKind.REPLICA}))
NEWER = "/apis/nvidia-gpu-scheduler/v1/schedule"
VERBS = ("filter", "prioritize", "preempt")


class Port:
    def __init__(self, room: Room) -> None:
        query = QueryApi(room.plane, OwnRights(room.client, room.clock), 7)
        self.routes = Routes(NvidiaEndpoint(room.plane, query=query).routes())

    async def post(self, caller: Caller, path: str) -> tuple[int, Any]:
        return await self.ask(caller, "POST", path, msgspec.json.encode(names_call(wanting(1, "Tesla T4"), ["t4"])))

    async def ask(self, caller: Caller, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        found = self.routes.find(method, path)
        assert isinstance(found, tuple)
        call, handler = Call(body=body, path=path, caller=caller, method=method), found[0]
        assert isinstance(handler, DecisionHandler | OwnRightsHandler)
        assert handler.guard is not None
        given = await handler.guard(call) or await handler(call)
        return given.status, msgspec.json.decode(given.body)


def give(room: Room, user: str, group: str, *names: str) -> None:
    rule = {"apiGroups": [group], "resources": ["schedule"], "verbs": ["create"], "resourceNames": list(names)}
    of = {"apiGroup": "rbac.authorization.k8s.io"}
    meta = {"name": f"{group}-{'-'.join(names)}"}
    subjects = [{**of, "kind": "User", "name": user}]
    binding = {"metadata": meta, "roleRef": {**of, "kind": "ClusterRole", "name": meta["name"]}, "subjects": subjects}
    room.api.registry.create(resources.CLUSTER_ROLES, "", {"metadata": meta, "rules": [rule]})
    room.api.registry.create(resources.CLUSTER_ROLE_BINDINGS, "", binding)


@pytest.fixture
async def port(room: Room) -> Port:
    await room.add_node(cards_of_models("t4", "Tesla T4"))
    give(room, SCHEDULER.name, "metrics.nvidia.com", "filter", "prioritize")
    give(room, SCHEDULER.name, "nvidia-gpu-scheduler", "filter")
    return Port(room)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (f"{PREFIX}/filter", True),
        (f"{PREFIX}/prioritize", True),
        (f"{PREFIX}/preempt", False),
        (f"{NEWER}/filter", True),
        (f"{NEWER}/prioritize", False),
    ],
)
async def test_a_verb_needs_the_right_to_create_schedule_by_its_name(port: Port, path: str, allowed: bool) -> None:
    status, body = await port.post(SCHEDULER, path)
    if allowed:
        assert status == 200
    else:
        verb, group = path.rpartition("/")[2], path.split("/")[2]
        assert (status, body["kind"], body["reason"]) == (403, "Status", "Forbidden")
        assert body["details"] == {"name": verb, "group": group, "kind": "schedule"}
        assert f'User "{SCHEDULER.name}" cannot create resource "schedule"' in body["message"]


@pytest.mark.parametrize("verb", VERBS)
async def test_nobody_else_decides_or_reserves(room: Room, port: Port, verb: str) -> None:
    """Whatever kind of caller the configuration says it is."""
    for caller in (STRANGER, Caller("other", frozenset({CallerKind.SCHEDULER, CallerKind.READER}))):
        assert (await port.post(caller, f"{PREFIX}/{verb}"))[0] == 403
    assert room.entries("t4") == {}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_replica_has_asked_already(room: Room, port: Port, verb: str) -> None:
    before = len(room.api.writes())
    assert (await port.post(REPLICA, f"{PREFIX}/{verb}"))[0] == 200
    assert len(room.api.writes()) == before, "no review"


async def test_without_an_answer_to_the_review_nothing_is_decided(room: Room, port: Port) -> None:
    room.api.script("POST", "subjectaccessreviews", *[answer(503)] * 20)
    status, body = await port.post(SCHEDULER, f"{PREFIX}/filter")
    assert (status, body["kind"], body["reason"]) == (503, "Status", "ServiceUnavailable")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_another_method_is_refused_as_in_every_api_server(port: Port, method: str) -> None:
    master = Caller("admin", frozenset(), ("system:masters",))
    for caller, code, reason in ((master, 405, "MethodNotAllowed"), (STRANGER, 403, "Forbidden")):
        status, body = await port.ask(caller, method, f"{PREFIX}/filter")
        assert (status, body["kind"], body["reason"]) == (code, "Status", reason)
