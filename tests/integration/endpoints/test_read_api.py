"""The read endpoints: each caller sees what it may read in Kubernetes, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from aliquot.clock import Clock
from aliquot.control.inputs.past_load import PastLoad
from aliquot.control.inputs.pod_use import pod_uses
from aliquot.control.state.events import QuotasRead
from aliquot.embedded.api import resources
from aliquot.endpoints.asgi import ANYONE, Call, Caller, Response, Routes
from aliquot.endpoints.asgi import json as json_answer
from aliquot.endpoints.callers import Callers, Known
from aliquot.endpoints.own_rights import OwnRights
from aliquot.endpoints.read_api import ReadApi
from aliquot.endpoints.tokens import Tokens
from aliquot.errors import Refused
from aliquot.kube import Client
from aliquot.kube.reviews import Action
from aliquot.model.bounds import MAX_READS, MAX_READS_OF_CALLER, MAX_REVIEWS, MAX_WAITING_REVIEWS
from aliquot.model.load import CardLoad, NodeLoad, PodLoad
from tests.fakes import BusyClock, FakeClock, ScriptedApi, answer, body, held, until
from tests.integration.endpoints.serving import served
from tests.integration.room import Room

ADMIN, TENANT, STRANGER, NODE_READER = "admin", "jane", "joe", "nora"
LIST_PODS = Action("list", "pods")
PLURALS = ["nodes", "pods", "queue", "waste", "quota", "history"]

pytestmark = pytest.mark.embedded_only("the users are the test's own")


@pytest.fixture
def clock() -> BusyClock:
    return BusyClock()


class Reading:
    def __init__(self, room: Room, **bounds: int) -> None:
        self.room = room
        self.rights = OwnRights(room.client, room.clock)
        self._routes = Routes(ReadApi(room.plane, self.rights, **bounds).routes())

    async def get(self, path: str, user: str | None = ADMIN, query: str = "", address: str = "") -> tuple[int, Any]:
        found = self._routes.find("GET", f"/v1/{path}")
        assert isinstance(found, tuple)
        handler, tail = found
        caller = ANYONE if user is None else Caller(user, frozenset())
        answered = await handler(Call(tail, path=path, query=query, caller=caller, address=address))
        return answered.status, json.loads(answered.body)

    def reviews(self) -> int:
        return sum("subjectaccessreviews" in seen.path for seen in self.room.api.writes())


def give(room: Room, user: str, namespace: str = "", resource: str = "*") -> None:
    """The right to list pods in a namespace; without one, pods everywhere and nodes, or the `resource` alone."""
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}]
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    kind = "Role" if namespace else "ClusterRole"
    role = {"metadata": {"name": user, **({"namespace": namespace} if namespace else {})}, "rules": rules}
    binding = {
        "metadata": role["metadata"],
        "roleRef": {**group, "kind": kind, "name": user},
        "subjects": [{**group, "kind": "User", "name": user}],
    }
    registry = room.api.registry
    if namespace:
        registry.create(resources.ROLES, namespace, role)
        registry.create(resources.ROLE_BINDINGS, namespace, binding)
    else:
        registry.create(resources.CLUSTER_ROLES, "", role)
        registry.create(resources.CLUSTER_ROLE_BINDINGS, "", binding)


def measure(room: Room) -> None:
    """Node n1 reports how busy its cards and pods are."""
    entries = room.plane.cluster.ledger.entries("n1")
    pods = {entry.uid: {part.uuid: PodLoad(cores=0.5) for part in entry.placement.slices()} for entry in entries}
    load = NodeLoad(1.0, {uuid: CardLoad(0.5) for used in pods.values() for uuid in used}, pods)
    room.plane.heartbeats.history.take(
        "n1", room.clock.wall_ns() / 1e9, load.cards, pod_uses(load, entries, room.plane.cluster.cards("n1"))
    )


@pytest.fixture
async def reading(room: Room) -> Reading:
    """A node that pods of two namespaces fill, and one pod that waits in each."""
    give(room, ADMIN)
    give(room, TENANT, "default")
    await room.add_node()
    for name, namespace, units in (("mine", "default", 12), ("theirs", "kube-system", 11)):
        pod = await room.add_pod(name, units, namespace=namespace)
        await room.commit(pod, "n1")
        await room.in_sync()
    await room.add_pod("urgent", 5, namespace="kube-system", priority=9)
    await room.add_pod("patient", 5)
    return Reading(room)


async def test_a_reader_of_everything_sees_everything(reading: Reading) -> None:
    _, nodes = await reading.get("nodes")
    assert [pod for card in nodes["nodes"][0]["cards"] for pod in card["pods"]] == [
        "default/mine",
        "kube-system/theirs",
    ]
    _, pods = await reading.get("pods")
    assert [pod["name"] for pod in pods["pods"]] == ["mine", "patient", "theirs", "urgent"]
    _, queue = await reading.get("queue")
    assert [(pod["name"], pod["behind"]) for pod in queue["pods"]] == [
        ("urgent", ""),
        ("patient", "kube-system/urgent"),
    ]
    _, waste = await reading.get("waste")
    assert {pod["name"] for pod in waste["pods"]} == {"mine", "theirs"}
    _, explained = await reading.get("explain/default/patient")
    assert explained["cause"] == "Fragmented"
    assert "when pod kube-system/theirs ends (on n1)" in explained["changes"]


async def test_a_tenant_sees_its_namespace(reading: Reading) -> None:
    _, pods = await reading.get("pods", TENANT, "namespace=default")
    assert [pod["name"] for pod in pods["pods"]] == ["mine", "patient"]
    _, queue = await reading.get("queue", TENANT, "namespace=default")
    assert [(pod["name"], pod["position"], pod["behind"]) for pod in queue["pods"]] == [
        ("patient", 2, "a pod of another namespace")
    ]
    _, waste = await reading.get("waste", TENANT, "namespace=default")
    assert [pod["name"] for pod in waste["pods"]] == ["mine"]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        *(pytest.param(path, "", id=f"all {path}") for path in PLURALS),
        *(pytest.param(path, "namespace=kube-system", id=f"{path} of others") for path in PLURALS),
        pytest.param("explain/kube-system/urgent", "", id="a pod of others"),
        pytest.param("explain/kube-system/none", "", id="a pod of others that does not exist"),
        pytest.param("history", "node=n1", id="a node's history"),
        pytest.param("explain/default/patient", "node=n1", id="a node's cards"),
        pytest.param("explain/default/patient", "node=n9", id="whether there is a node"),
    ],
)
async def test_a_tenant_sees_nothing_of_others(reading: Reading, path: str, query: str) -> None:
    status, body = await reading.get(path, TENANT, query)

    assert (status, list(body)) == (403, ["error"])
    assert body["error"].startswith("jane may not list")


@pytest.mark.parametrize("query", ["node=n1", "node=n1&namespace=kube-system"])
@pytest.mark.parametrize("path", ["pods", "queue", "waste", "quota"])
async def test_the_right_to_list_nodes_shows_no_pods_of_others(reading: Reading, path: str, query: str) -> None:
    give(reading.room, NODE_READER, resource="nodes")

    assert (await reading.get("history", NODE_READER, query))[0] == 200
    assert (await reading.get(path, NODE_READER, query))[0] == 403


@pytest.mark.parametrize("path", [*PLURALS, "explain/default/patient"])
async def test_who_has_no_rights_sees_nothing(reading: Reading, path: str) -> None:
    assert (await reading.get(path, STRANGER, "namespace=default"))[0] == 403


async def test_no_answer_to_a_tenant_names_a_pod_of_others(reading: Reading) -> None:
    for path in ("pods", "queue", "waste", "quota", "history"):
        status, body = await reading.get(path, TENANT, "namespace=default")
        assert (path, status) == (path, 200)
        assert not {"theirs", "urgent", "kube-system"} & set(_words(body)), path
    _, explained = await reading.get("explain/default/patient", TENANT)
    assert "when a pod of another namespace ends (on n1)" in explained["changes"]
    assert "theirs" not in str(explained)


def _words(body: Any) -> list[str]:
    return json.dumps(body).replace('"', " ").replace("/", " ").replace(",", " ").split()


async def test_a_port_that_answers_anyone_answers_anyone(reading: Reading) -> None:
    for path in [*PLURALS, "explain/default/patient"]:
        assert (await reading.get(path, None))[0] == 200
    assert reading.reviews() == 0


async def test_quotas_of_a_namespace(reading: Reading) -> None:
    reading.room.plane.cluster.apply(
        QuotasRead('{"default": {"memory": {"T4": 20480}}, "kube-system": {"quota": {"T4": 1}}}')
    )

    _, quota = await reading.get("quota", TENANT, "namespace=default")

    assert [entry["namespace"] for entry in quota["namespaces"]] == ["default"]
    assert quota["namespaces"][0]["limits"][0] == {"model": "T4", "measure": "MiB", "used": 12288.0, "limit": 20480}


async def test_what_is_wrong_with_the_quotas_of_others_is_for_those_who_may_read_them(reading: Reading) -> None:
    reading.room.plane.cluster.apply(QuotasRead('{"kube-system": {"quota": {"T4": "many"}}}'))

    _, shown = await reading.get("quota")
    assert "'kube-system'" in shown["trouble"]
    _, shown = await reading.get("quota", TENANT, "namespace=default")
    assert shown["trouble"] == "the newest quotas cannot be used; ask your cluster's administrator"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("explain/default/nobody", "there is no pod nobody in namespace default"),
        ("explain/default/patient?n9", "there is no node n9"),
        ("history?n9", "there is no node n9"),
    ],
)
async def test_what_does_not_exist_is_not_found(reading: Reading, path: str, why: str) -> None:
    name, _, node = path.partition("?")
    assert await reading.get(name, query=f"node={node}") == (404, {"error": why})


async def test_a_name_that_no_namespace_can_have_is_not_reviewed(reading: Reading) -> None:
    await reading.get("pods", TENANT, "namespace=default")
    before = reading.reviews()

    assert (await reading.get("pods", TENANT, f"namespace={'a' * 254}"))[0] == 404
    assert (await reading.get(f"explain/{'a' * 254}/p", TENANT))[0] == 404
    assert reading.reviews() == before


async def test_one_node_card_by_card(reading: Reading) -> None:
    _, explained = await reading.get("explain/default/patient", query="node=n1")

    (finding,) = explained["nodes"]
    assert finding.splitlines()[0] == "n1: not enough room on the node's GPUs now"


# -- many calls at once


async def test_one_caller_leaves_places_to_others(reading: Reading) -> None:
    mine = [reading.get("pods") for _ in range(MAX_READS_OF_CALLER + 1)]
    answers = await asyncio.gather(*mine, reading.get("pods", TENANT, "namespace=default"))

    assert [status for status, _ in answers] == [200] * MAX_READS_OF_CALLER + [503, 200]
    assert (await reading.get("pods"))[0] == 200


async def test_all_callers_leave_places_to_schedulers(reading: Reading) -> None:
    path, addresses = "explain/default/patient", [f"192.0.2.{number}" for number in range(MAX_READS + 1)]
    answers = await asyncio.gather(*(reading.get(path, None, address=address) for address in addresses))

    assert [status for status, _ in answers] == [200] * MAX_READS + [503]
    assert answers[-1][1] == {"error": "too many reads are in progress; try again"}


@pytest.mark.parametrize(
    ("path", "parts"), [("nodes", 1), ("pods", 4), ("queue", 2), ("waste", 4), ("quota", 3), ("history", 2)]
)
async def test_schedulers_are_answered_between_the_parts_of_a_report_as_it_is_made_and_encoded(
    reading: Reading, clock: BusyClock, path: str, parts: int
) -> None:
    reading.room.plane.cluster.apply(QuotasRead('{"a": {}, "b": {}, "c": {}}'))
    measure(reading.room)
    clock.asked.clear()
    clock.step = 1.0

    assert (await reading.get(path))[0] == 200

    clock.step = 0.0
    assert clock.asked.count(0) >= 2 * parts


async def test_an_answer_has_so_many_histories_and_counts_the_others(reading: Reading) -> None:
    measure(reading.room)
    _, every = await reading.get("history")
    assert ([past["name"] for past in every["histories"]], every["note"]) == (["mine", "theirs"], "")

    _, few = await Reading(reading.room, most_histories=1).get("history")

    assert [past["name"] for past in few["histories"]] == ["mine"]
    assert few["note"] == "pods with a history that are not shown: 1; ask for a namespace"


async def test_one_pod_s_history(reading: Reading) -> None:
    measure(reading.room)
    _, one = await reading.get("history", TENANT, "namespace=default&pod=mine")
    assert [past["name"] for past in one["histories"]] == ["mine"]
    _, none = await reading.get("history", query="namespace=default&pod=theirs")
    assert (none["histories"], none["note"]) == ([], "")
    assert await reading.get("history", query="pod=mine") == (400, {"error": "?pod= needs ?namespace=, too"})
    assert (await reading.get("history", TENANT, "namespace=kube-system&pod=theirs"))[0] == 403


async def test_a_review_that_takes_long_delays_nobody_else(reading: Reading) -> None:
    await reading.get("pods")
    arrived, release = asyncio.Event(), asyncio.Event()
    reading.room.api.script("POST", "subjectaccessreviews", held(arrived, release))
    waiting = asyncio.create_task(reading.get("pods", STRANGER))
    await arrived.wait()

    assert (await reading.get("pods"))[0] == 200
    assert not waiting.done()

    release.set()
    await waiting


# -- rights are cached


async def test_a_right_is_reviewed_once_a_minute_and_a_missing_one_every_ten_seconds(reading: Reading) -> None:
    clock = reading.room.clock
    for _ in range(3):
        await reading.get("pods")
        await reading.get("pods", STRANGER)
    assert reading.reviews() == 2

    await clock.move(11.0)
    await reading.get("pods")
    await reading.get("pods", STRANGER)
    assert reading.reviews() == 3

    await clock.move(50.0)
    await reading.get("pods")
    assert reading.reviews() == 4


async def test_reviews_at_once_are_bounded_and_equal_questions_are_asked_once(
    scripted: ScriptedApi, client: Client, clock: Clock
) -> None:
    """A burst of callers waits for its turn; a flood is refused."""
    rights, arrived, release = OwnRights(client, clock), asyncio.Event(), asyncio.Event()
    for _ in range(MAX_REVIEWS):
        scripted.script("POST", "subjectaccessreviews", held(arrived, release))
    asking = [asyncio.create_task(rights.allow(Caller(ADMIN, frozenset()), LIST_PODS)) for _ in range(20)]
    await arrived.wait()
    others = [Caller(f"user-{number}", frozenset()) for number in range(MAX_WAITING_REVIEWS)]
    waiting = [asyncio.create_task(rights.allow(caller, LIST_PODS)) for caller in others[:-1]]
    await until(lambda: len(scripted.writes()) == MAX_REVIEWS, "as many reviews as may be")

    with pytest.raises(Refused, match="too many callers"):
        await rights.allow(others[-1], LIST_PODS)
    assert len(scripted.writes()) == MAX_REVIEWS, "the others wait"

    release.set()
    assert not any(await asyncio.gather(*asking, *waiting))
    assert len(scripted.writes()) == MAX_WAITING_REVIEWS


async def test_a_right_can_be_known_for_a_shorter_time(scripted: ScriptedApi, client: Client, clock: FakeClock) -> None:
    rights, master = OwnRights(client, clock, given_seconds=10.0), Caller("root", frozenset(), ("system:masters",))
    allowed = body(b'{"status":{"allowed":true}}', 201)
    scripted.script("POST", "subjectaccessreviews", allowed, allowed)
    for seconds, reviews in ((0.0, 1), (9.0, 1), (2.0, 2)):
        await clock.move(seconds)
        assert await rights.allow(Caller("jane", frozenset()), LIST_PODS)
        assert len(scripted.writes()) == reviews
    assert await rights.allow(master, LIST_PODS)
    assert len(scripted.writes()) == 2, "every API server allows it everything"


async def test_a_right_is_reviewed_with_all_that_the_token_said(
    scripted: ScriptedApi, client: Client, clock: Clock
) -> None:
    """An authorizer may narrow a token's rights by its `extra`, so two tokens of one user may differ."""
    said = b'{"status":{"authenticated":true,"user":{"username":"jane","extra":{"scopes":["%b"]}}}}'
    rights = OwnRights(client, clock)
    for token in (b"all", b"none"):
        scripted.script("POST", "tokenreviews", body(said % token, 201))
        caller = await Callers(Known(), Tokens(client, clock)).identify(None, b"Bearer " + token)
        assert isinstance(caller, Caller)
        await rights.allow(caller, LIST_PODS)

    reviews = [seen.body["spec"] for seen in scripted.writes() if "subjectaccessreviews" in seen.path]
    assert [review.get("extra") for review in reviews] == [{"scopes": ["all"]}, {"scopes": ["none"]}]


async def test_without_the_right_to_review_the_rule_is_named(reading: Reading) -> None:
    reading.room.api.script("POST", "subjectaccessreviews", answer(403))

    status, body = await reading.get("pods")

    assert status == 503
    assert "subjectaccessreviews" in body["error"]


# -- more than the last hour


class FakePrometheus:
    """Knows one sample of everything. `asked` are the queries, `status` is how it answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = 200

    async def answer(self, call: Call) -> Response:
        self.asked.append(parse_qs(call.query)["query"][0])
        value = "0.25" if "cores" in self.asked[-1] else "1024"
        return json_answer({"status": "success", "data": {"result": [{"values": [[1000, value]]}]}}, self.status)


@pytest.fixture
async def prometheus(reading: Reading) -> AsyncIterator[FakePrometheus]:
    fake, plane = FakePrometheus(), reading.room.plane
    measure(reading.room)
    async with served(Routes({("GET", "/api/v1/query_range"): fake.answer})) as url:
        plane.past_load = PastLoad(plane.heartbeats.history, plane.pods.with_uid, plane.clock, url)
        yield fake
        await plane.past_load.close()


def _sources(report: Any) -> list[tuple[str, str, list[float | None]]]:
    return [
        (past["name"] or past["uuid"], past["source"], [sample["cores"] for sample in past["samples"]])
        for past in report["histories"]
    ]


async def test_more_than_the_last_hour_comes_from_prometheus(reading: Reading, prometheus: FakePrometheus) -> None:
    memory = reading.room.plane.heartbeats.history
    for entry in reading.room.plane.cluster.ledger.all():
        memory.forget_pod(entry.uid)  # as if the server had just started

    _, pods = await reading.get("history", query="seconds=86400")
    _, cards = await reading.get("history", query="seconds=86400&node=n1")

    assert _sources(pods) == [("mine", "prometheus", [0.25]), ("theirs", "prometheus", [0.25])]
    assert _sources(cards) == [("GPU-n1-0", "prometheus", [0.25]), ("GPU-n1-1", "prometheus", [0.25])]
    assert (pods["note"], cards["note"]) == ("", "")
    assert len(prometheus.asked) == 8


async def test_a_tenant_s_call_asks_prometheus_about_its_own_pods_only(
    reading: Reading, prometheus: FakePrometheus
) -> None:
    assert (await reading.get("history", TENANT, "seconds=86400"))[0] == 403
    assert (await reading.get("history", TENANT, "seconds=86400&node=n1"))[0] == 403
    assert prometheus.asked == []

    _, shown = await reading.get("history", TENANT, "seconds=86400&namespace=default")

    assert [name for name, *_ in _sources(shown)] == ["mine"]
    assert prometheus.asked
    assert all('namespace="default",pod="mine"' in query for query in prometheus.asked)


async def test_an_hour_and_less_comes_from_memory(reading: Reading, prometheus: FakePrometheus) -> None:
    await reading.room.clock.move(1200.0)

    _, hour = await reading.get("history", query="seconds=3600")
    _, minutes = await reading.get("history", query="seconds=600")

    assert _sources(hour) == [("mine", "memory", [0.5]), ("theirs", "memory", [0.5])]
    assert (minutes["histories"], prometheus.asked) == ([], [])


async def test_a_prometheus_that_fails_is_asked_once_and_memory_answers(
    reading: Reading, prometheus: FakePrometheus
) -> None:
    prometheus.status = 500

    _, shown = await reading.get("history", query="seconds=86400")

    assert _sources(shown) == [("mine", "memory", [0.5]), ("theirs", "memory", [0.5])]
    assert shown["note"] == "where the source is memory, only the last hour is known"
    assert prometheus.asked
    assert all('pod="mine"' in query for query in prometheus.asked)  # it is not asked about the second pod


@pytest.mark.parametrize("seconds", ["day", "0", "-1", "nan", "1e99"])
async def test_seconds_are_a_number(reading: Reading, seconds: str) -> None:
    status, told = await reading.get("history", query=f"seconds={seconds}")

    assert (status, told) == (400, {"error": "?seconds= takes a number above 0, at most 31622400"})
