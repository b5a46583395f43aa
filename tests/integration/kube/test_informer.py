"""The informer: a copy that follows the API server through everything that breaks."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.kube import NODES, PODS, Access, Client, Informer
from aliquot.model import Node, Pod
from tests.factories import node_manifest, pod_manifest
from tests.fakes import FakeClock, Fault, ScriptedApi, answer, body, cut_before, held, stream, until

LIST, WATCH = "limit=", "watch=true"
REAL_POD_BOOKMARK = (
    b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12746",'
    b'"creationTimestamp":null},"spec":{"containers":null},"status":{}}}\n'
)
BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}\n'


class Follower:
    """An informer of nodes and all that it has told."""

    def __init__(self, api: ScriptedApi, client: Client, clock: FakeClock) -> None:
        self.api = api
        self.clock = clock
        self.told: list[str] = []
        self.informer: Informer[Node] = Informer(client, NODES, self._tell, clock=clock)

    def _tell(self, old: Node | None, new: Node | None) -> None:
        change = "+" if old is None else "-" if new is None else "~"
        node = new or old
        assert node is not None
        assert (self.informer.get(node.key) is new) or new is None
        self.told.append(f"{change}{node.key}")

    def make(self, name: str) -> None:
        self.api.registry.create(resources.NODES, "", node_manifest(name))

    def remove(self, name: str) -> None:
        self.api.registry.delete(resources.NODES, "", name, DeleteRequest())

    async def has(self, *names: str) -> None:
        await until(lambda: {node.key for node in self.informer.all()} == set(names), f"the copy has {names}")

    async def trouble(self) -> str:
        await until(lambda: self.informer.trouble and self.clock.sleeping, "there is trouble")
        return self.informer.trouble


@pytest.fixture
async def follower(scripted: ScriptedApi, client: Client, clock: FakeClock) -> AsyncIterator[Follower]:
    made = Follower(scripted, client, clock)
    task = asyncio.create_task(made.informer.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_is_there_and_what_happens_is_told_in_order(follower: Follower) -> None:
    assert follower.informer.trouble == "has not listed yet"
    follower.make("a")
    await follower.informer.synced.wait()
    assert follower.informer.trouble == ""
    follower.make("b")
    await follower.has("a", "b")
    follower.remove("a")
    await follower.has("b")
    assert follower.told == ["+a", "+b", "-a"]


BREAKS = [
    pytest.param([stream(then_cut=True)], id="the stream is cut"),
    pytest.param([cut_before] * 2, id="the list's connection is cut, and the second one too"),
    pytest.param([answer(500, message="tests")], id="the server fails"),
    pytest.param([answer(429, message="tests")], id="the server is busy"),
    pytest.param([stream(b"nonsense\n")], id="the stream is no JSON"),
    pytest.param(
        [stream(b'{"type":"ERROR","object":{"code":500,"message":"tests"}}\n')], id="an error comes in the stream"
    ),
]


@pytest.mark.parametrize("faults", BREAKS)
async def test_what_happens_while_the_watch_is_broken_is_told_when_it_is_mended(
    follower: Follower, faults: list[Fault]
) -> None:
    for name in ("kept", "deleted", "made-again"):
        follower.make(name)
    follower.api.script("GET", WATCH, *faults)
    assert (await follower.trouble()).startswith("cannot read nodes: ")
    assert follower.told == ["+deleted", "+kept", "+made-again"]
    follower.remove("deleted")
    follower.remove("made-again")
    follower.make("made-again")
    follower.make("new")
    await follower.clock.move(1)
    await follower.has("kept", "made-again", "new")
    assert follower.told[3:] == ["-deleted", "-made-again", "+made-again", "+new"], "and nothing of what is the same"
    await until(lambda: follower.informer.trouble == "")


async def test_a_watch_that_the_server_ends_goes_on_where_it_was_without_a_list(follower: Follower) -> None:
    """And after a pause if it had said nothing: a server that ends every watch at once is not asked in a tight loop."""
    follower.api.script("GET", WATCH, stream(), stream())
    await follower.informer.synced.wait()
    for _ in range(2):
        await until(lambda: follower.clock.sleeping)
        await follower.clock.move(0.4)
    follower.make("a")
    await follower.has("a")
    lists = [seen for seen in follower.api.seen if seen.path == "/api/v1/nodes"]
    assert len(lists) == 4
    assert follower.informer.trouble == ""


async def test_a_watch_that_is_cut_goes_on_where_it_was_without_a_list_and_without_trouble(follower: Follower) -> None:
    follower.make("a")
    now = BOOKMARK.replace(b'"1"', b'"%d"' % follower.api.store.revision)
    follower.api.script("GET", WATCH, stream(now, then_cut=True))
    await follower.has("a")
    await until(lambda: len(follower.api.seen) == 3, "the watch is opened again")
    follower.make("b")
    await follower.has("a", "b")
    assert [seen.query.count("watch=true") for seen in follower.api.seen] == [0, 1, 1]
    assert (follower.informer.trouble, follower.clock.asked) == ("", [])


@pytest.mark.parametrize("code", [429, 503])
async def test_a_busy_or_restarting_server_is_not_asked_for_a_list(follower: Follower, code: int) -> None:
    follower.api.script("GET", WATCH, *[answer(code, message="later")] * 3)
    for _ in range(3):
        await follower.trouble()
        await follower.clock.move(follower.clock.asked[-1])
    await until(lambda: follower.informer.trouble == "", "the watch is open")
    assert [seen.query.count("watch=true") for seen in follower.api.seen] == [0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(answer(410, message="too old"), id="as the answer"),
        pytest.param(stream(b'{"type":"ERROR","object":{"code":410,"message":"too old"}}\n'), id="in the stream"),
    ],
)
async def test_a_version_that_is_too_old_is_listed_again_after_a_moment(follower: Follower, gone: Fault) -> None:
    follower.make("a")
    follower.api.script("GET", WATCH, gone)
    assert await follower.trouble() == "the copy of nodes is too old: too old"
    await follower.clock.move(0.2)
    await until(lambda: len(follower.api.seen) >= 4)
    await until(lambda: follower.informer.trouble == "", "the next list ends the trouble")
    assert follower.told == ["+a"], "and nothing of what is the same"


@pytest.mark.parametrize("what", [LIST, WATCH])
async def test_a_missing_right_is_told_in_the_server_s_words(follower: Follower, what: str) -> None:
    words = 'nodes is forbidden: User "gpu" cannot watch resource "nodes" in API group "" at the cluster scope'
    follower.api.script("GET", what, answer(403, reason="Forbidden", message=words))
    assert await follower.trouble() == f"cannot read nodes: {words}"
    await follower.clock.move(1)
    await until(lambda: follower.informer.trouble == "")


async def test_the_pause_grows_while_the_server_is_away(follower: Follower) -> None:
    follower.api.script("GET", LIST, *[answer(503, message="away")] * 8)
    for _ in range(8):
        assert await follower.trouble() == "cannot read nodes: the API server answered 503: away"
        await follower.clock.move(10)
    await follower.informer.synced.wait()
    for pause, longest in zip(follower.clock.asked, (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10), strict=True):
        assert longest / 2 <= pause <= longest


async def test_the_pause_is_short_again_after_an_event(follower: Follower) -> None:
    follower.api.script("GET", LIST, *[answer(503, message="away")] * 3)
    follower.api.script("GET", WATCH, stream(BOOKMARK, then_cut=True), answer(503, message="away"))
    for _ in range(4):
        await follower.trouble()
        await follower.clock.move(10)
    await until(lambda: follower.informer.trouble == "")
    assert follower.clock.asked[2] > 0.2 >= follower.clock.asked[3]


@pytest.mark.parametrize("faults", BREAKS)
async def test_the_pause_grows_while_every_watch_fails(follower: Follower, faults: list[Fault]) -> None:
    follower.api.script("GET", WATCH, *faults, *faults[-1:] * 5)  # a list's connection is there for the first only
    for _ in range(6):
        await follower.trouble()
        await follower.clock.move(follower.clock.asked[-1])
    await until(lambda: follower.informer.trouble == "")
    for pause, longest in zip(follower.clock.asked, (0.2, 0.4, 0.8, 1.6, 3.2, 6.4), strict=True):
        assert longest / 2 <= pause <= longest


async def test_a_list_that_cannot_be_read_is_trouble_and_keeps_what_was_known(follower: Follower) -> None:
    follower.make("a")
    follower.api.script("GET", WATCH, answer(410, message="too old"))
    await follower.trouble()
    follower.api.script("GET", LIST, body(b"{}"))
    await follower.clock.move(1)
    assert "the API server's answer is not a" in await follower.trouble()
    assert [node.key for node in follower.informer.all()] == ["a"]


async def test_bookmarks_move_the_version_from_which_a_watch_goes_on(follower: Follower) -> None:
    follower.api.script("GET", WATCH, stream(BOOKMARK), held(asyncio.Event(), asyncio.Event()))
    await until(lambda: len(follower.api.queries(WATCH)) == 2)
    assert "resourceVersion=1&" in follower.api.queries(WATCH)[1]


# -- indexes


@pytest.fixture
async def pods(client: Client, clock: FakeClock) -> AsyncIterator[Informer[Pod]]:
    def look(old: Pod | None, new: Pod | None) -> None:
        """The indexes are in step with what is told."""
        if new is not None:
            assert made.with_uid(new.metadata.uid) is new
            assert new in made.having("node", new.spec.node_name) or not new.spec.node_name
        elif old is not None:
            assert made.with_uid(old.metadata.uid) is None

    by_node = {"node": lambda pod: pod.spec.node_name, "phase": lambda pod: pod.status.phase}
    made: Informer[Pod] = Informer(client, PODS, look, indexes=by_node, clock=clock)
    task = asyncio.create_task(made.run())
    await made.synced.wait()
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def keys(found: list[Pod]) -> set[str]:
    return {pod.key for pod in found}


async def test_objects_are_found_by_uid_and_by_index_as_they_move(
    pods: Informer[Pod], scripted: ScriptedApi, client: Client
) -> None:
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "")):
        scripted.registry.create(resources.PODS, "default", pod_manifest(name, node=node))
    await until(lambda: len(pods.all()) == 3)
    assert keys(pods.having("node", "n1")) == {"default/a", "default/b"}
    assert pods.having("node", "") == []
    await client.bind({"metadata": {"name": "c", "namespace": "default"}, "target": {"name": "n2"}}, timeout=20)
    await until(lambda: pods.having("node", "n2"))
    c = pods.having("node", "n2")[0]
    assert pods.with_uid(c.metadata.uid) is c is pods.get("default/c")
    for name in ("a", "b", "c"):
        await client.delete(PODS, name, "default", grace=0)
    await until(lambda: not pods.all())
    assert pods.having("node", "n1") == pods.having("node", "n2") == []
    assert pods.with_uid(c.metadata.uid) is None


async def test_indexes_follow_a_new_list_and_a_pod_made_again_under_its_name(
    pods: Informer[Pod], scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    for name in ("a", "b"):
        scripted.registry.create(resources.PODS, "default", pod_manifest(name, node="n1"))
    await until(lambda: len(pods.all()) == 2)
    old = pods.get("default/a")
    assert old is not None
    scripted.script("GET", WATCH, answer(410, message="too old"))
    scripted.cut_watches("pods")
    for name in ("a", "b"):
        await client.delete(PODS, name, "default", grace=0)
    scripted.registry.create(resources.PODS, "default", pod_manifest("a", node="n2"))
    await until(lambda: pods.having("node", "n2"), passing=clock)
    assert pods.having("node", "n1") == []
    assert pods.with_uid(old.metadata.uid) is None
    assert keys(pods.all()) == {"default/a"}


async def test_a_busy_server_is_left_alone_as_long_as_it_asks(follower: Follower) -> None:
    follower.api.script("GET", WATCH, answer(429, message="busy", details={"retryAfterSeconds": 7}))
    assert await follower.trouble() == "cannot read nodes: busy"
    assert 7.1 <= follower.clock.asked[0] <= 7.2
    await follower.clock.move(8)
    await until(lambda: follower.informer.trouble == "")


async def test_a_watch_that_falls_silent_is_opened_again(scripted: ScriptedApi, clock: FakeClock) -> None:
    scripted.script("GET", WATCH, held(asyncio.Event(), asyncio.Event()))
    async with Client(Access(scripted.url), silence=0.2) as client:
        follower = Follower(scripted, client, clock)
        task = asyncio.create_task(follower.informer.run())
        assert "got no answer" in await follower.trouble()
        follower.make("a")
        await until(lambda: follower.told, passing=clock)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert follower.told[0] == "+a"


async def test_a_bookmark_of_pods_as_a_real_server_sends_it_moves_the_version(
    scripted: ScriptedApi, client: Client
) -> None:
    """A pod without containers is no pod, but this is none."""
    scripted.script("GET", r"/pods\?.*watch=true", stream(REAL_POD_BOOKMARK))
    changes = [change async for change in client.watch(PODS, "1")]
    seen = [(change.type, change.object, change.resource_version) for change in changes]
    assert seen == [("BOOKMARK", None, "12746")]


async def test_a_list_that_was_asked_for_is_made_however_often_it_fails(follower: Follower) -> None:
    await follower.informer.synced.wait()
    follower.api.script("GET", LIST, answer(500, message="tests"), answer(500, message="tests"))
    asked = asyncio.create_task(follower.informer.refresh())
    await until(asked.done, "the list is made", passing=follower.clock, between_calls_of=follower.api)
    await asked
    assert follower.informer.trouble == ""


async def test_who_asks_while_a_list_is_made_gets_the_next_one(follower: Follower) -> None:
    await follower.informer.synced.wait()
    arrived, release = asyncio.Event(), asyncio.Event()
    follower.api.script("GET", LIST, held(arrived, release))
    first = asyncio.create_task(follower.informer.refresh())
    await arrived.wait()
    second = asyncio.create_task(follower.informer.refresh())
    await asyncio.sleep(0)
    before = len(follower.api.queries("limit="))
    release.set()
    await first
    await second
    assert len(follower.api.queries("limit=")) == before + 1
