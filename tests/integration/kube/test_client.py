"""The client: every way in which an answer can go wrong becomes one of our errors."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from aliquot import counts
from aliquot.embedded.api import resources
from aliquot.kube import NODES, PODS, Access, ApiError, Client, Conflict, KubeError, NoAnswer, NotFound, NotSent
from aliquot.kube.errors import (
    AlreadyExists,
    BadRequest,
    Forbidden,
    Gone,
    Invalid,
    TooManyRequests,
    Unauthorized,
    Unreadable,
)
from tests.factories import node_manifest, pod_manifest
from tests.fakes import FakeClock, Fault, Next, ScriptedApi, answer, body, cut_after, cut_before, held, hurried, stream

BINDING = {"metadata": {"name": "p", "namespace": "default"}, "target": {"name": "n1"}}

ERRORS: list[Any] = [
    pytest.param(answer(302, message="why"), ApiError, 302, id="302: nobody is followed with our token"),
    pytest.param(answer(400, message="why"), BadRequest, 400, id="400"),
    pytest.param(answer(401, message="why"), Unauthorized, 401, id="401"),
    pytest.param(answer(403, message="why"), Forbidden, 403, id="403"),
    pytest.param(answer(404, message="why"), NotFound, 404, id="404"),
    pytest.param(answer(409, message="why"), Conflict, 409, id="409"),
    pytest.param(answer(409, message="why", reason="AlreadyExists"), AlreadyExists, 409, id="409 at a creation"),
    pytest.param(answer(410, message="why"), Gone, 410, id="410"),
    pytest.param(answer(413, message="why"), ApiError, 413, id="any other"),
    pytest.param(answer(422, message="why"), Invalid, 422, id="422"),
    pytest.param(answer(429, message="why"), TooManyRequests, 429, id="429"),
    pytest.param(answer(500, message="why"), NoAnswer, None, id="500: it may have been done"),
    pytest.param(answer(503, message="why"), NoAnswer, None, id="503: it may have been done"),
    pytest.param(body(b"why, in plain text", 404), NotFound, 404, id="404 without a Status"),
    pytest.param(body(b"why \xff", 400), BadRequest, 400, id="400 with no UTF-8"),
]


@pytest.mark.parametrize(("fault", "kind", "code"), ERRORS)
async def test_an_answer_that_is_no_success_becomes_its_error(
    scripted: ScriptedApi, client: Client, fault: Fault, kind: type[KubeError], code: int | None
) -> None:
    scripted.script("GET", "/nodes/n1", fault)
    with pytest.raises(KubeError, match="why") as raised:
        await client.get(NODES, "n1")
    assert type(raised.value) is kind
    assert getattr(raised.value, "code", None) == code


async def test_an_error_without_words_still_says_what_it_was(scripted: ScriptedApi, client: Client) -> None:
    scripted.script("GET", "/nodes/n1", body(b"", 403))
    with pytest.raises(ApiError, match="the API server answered 403 Forbidden"):
        await client.get(NODES, "n1")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"metadata":7}', b'{"metadata":{"name":"\xff"}}', b"<html>"],
    ids=["nothing", "half", "a list", "another form", "no UTF-8", "a login page"],
)
async def test_a_body_that_is_no_object_is_unreadable(scripted: ScriptedApi, client: Client, content: bytes) -> None:
    scripted.script("GET", "/nodes/n1", body(content))
    with pytest.raises(Unreadable, match="the API server's answer is not a"):
        await client.get(NODES, "n1")


@pytest.mark.parametrize("fault", [cut_before, cut_after], ids=["before it was done", "after it was done"])
async def test_a_connection_cut_after_the_request_is_no_answer(
    scripted: ScriptedApi, client: Client, fault: Fault
) -> None:
    scripted.registry.create(resources.PODS, "default", pod_manifest())
    scripted.script("POST", "/binding", fault)
    with pytest.raises(NoAnswer, match="POST api/v1/namespaces/default/pods/p/binding got no answer"):
        await client.bind(BINDING, timeout=20)


async def test_silence_is_no_answer_after_the_time_given(scripted: ScriptedApi, client: Client) -> None:
    arrived, never = asyncio.Event(), asyncio.Event()
    scripted.script("POST", "/binding", held(arrived, never))
    binding = asyncio.create_task(client.bind(BINDING, timeout=20))
    await arrived.wait()
    with pytest.raises(NoAnswer):
        await hurried(binding)


async def test_a_body_cut_half_way_is_no_answer(scripted: ScriptedApi, client: Client) -> None:
    scripted.script("GET", "/nodes/n1", stream(b'{"metadata"', then_cut=True))
    with pytest.raises(NoAnswer):
        await client.get(NODES, "n1")


async def test_a_server_that_is_not_there_was_not_sent_anything() -> None:
    async with ScriptedApi() as api:
        url = api.url
    async with Client(Access(url)) as client:
        with pytest.raises(NotSent, match=f"the API server at {url} cannot be reached"):
            await client.get(NODES, "n1")


async def test_a_name_that_no_server_has_was_not_sent_anything() -> None:
    async with Client(Access("http://nowhere.invalid:1")) as client:
        with pytest.raises(NotSent):
            await client.get(NODES, "n1")


async def test_a_token_that_cannot_be_read_was_not_sent(tmp_path: Path, scripted: ScriptedApi) -> None:
    async with Client(Access(scripted.url, token_file=tmp_path / "token")) as client:
        with pytest.raises(NotSent, match="the token cannot be read"):
            await client.get(NODES, "n1")
    assert scripted.seen == []


# -- reading and writing


async def test_a_list_is_read_page_by_page(scripted: ScriptedApi, client: Client) -> None:
    for number in range(1201):
        scripted.registry.create(resources.NODES, "", node_manifest(f"n{number}"))
    listing = await client.list(NODES)
    assert len({node.key for node in listing.items}) == 1201
    assert len(scripted.seen) == 3
    assert listing.resource_version == str(scripted.store.revision)


async def test_a_list_is_narrowed_by_a_selector_and_a_namespace(scripted: ScriptedApi, client: Client) -> None:
    for name, node in (("a", "n1"), ("b", "n2")):
        scripted.registry.create(resources.PODS, "default", pod_manifest(name, node=node))
    listing = await client.list(PODS, selector={"fieldSelector": "spec.nodeName=n1"})
    assert [pod.key for pod in listing.items] == ["default/a"]
    assert (await client.list(PODS, namespace="kube-system")).items == []


async def test_objects_are_made_changed_and_deleted(scripted: ScriptedApi, client: Client) -> None:
    made = await client.create(PODS, pod_manifest(), "default")
    assert made.metadata.uid
    await client.patch(PODS, "p", {"metadata": {"annotations": {"a": "1"}}}, namespace="default")
    condition = {"conditions": [{"type": "Ready", "status": "False"}]}
    for kind in ("Ready", "Other"):
        condition["conditions"][0]["type"] = kind
        await client.patch(PODS, "p", {"status": condition}, namespace="default", part="status", merge_lists=True)
    pod = await client.get(PODS, "p", "default")
    assert pod.metadata.annotations == {"a": "1"}
    assert [c.type for c in pod.status.conditions or ()] == ["Other", "Ready"]
    await client.delete(PODS, "p", "default", grace=0)
    assert scripted.store.snapshot("pods") == []


CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "get": lambda client: client.get(PODS, "p", "default"),
    "patch": lambda client: client.patch(PODS, "p", {}, namespace="default"),
    "delete": lambda client: client.delete(PODS, "p", "default"),
    "bind": lambda client: client.bind(BINDING, timeout=20),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_what_is_not_there_is_not_found(client: Client, call: Callable[[Client], Awaitable[Any]]) -> None:
    with pytest.raises(NotFound, match='pods "p" not found'):
        await call(client)


async def test_a_patch_with_another_uid_is_refused(scripted: ScriptedApi, client: Client) -> None:
    """As the real API server does: the patch can only be taken by the pod that was meant."""
    scripted.registry.create(resources.PODS, "default", pod_manifest())
    for merge_lists in (False, True):
        with pytest.raises(Invalid, match="field is immutable"):
            await client.patch(PODS, "p", {}, namespace="default", merge_lists=merge_lists, uid="other")


LABELS = {"metadata": {"labels": {"a": "1"}}}


async def test_a_patch_of_another_version_is_a_conflict(scripted: ScriptedApi, client: Client) -> None:
    pod = await client.create(PODS, pod_manifest(), "default")
    read: Any = {"uid": pod.metadata.uid, "version": pod.metadata.resource_version}
    await client.patch(PODS, "p", LABELS, namespace="default", **read)
    for merge_lists in (False, True):
        with pytest.raises(Conflict, match="the object has been modified"):
            await client.patch(PODS, "p", LABELS, namespace="default", merge_lists=merge_lists, **read)
    sent = {"labels": {"a": "1"}, "uid": read["uid"], "resourceVersion": read["version"]}
    assert scripted.seen[1].body["metadata"] == sent


async def test_only_the_object_that_was_meant_is_deleted(scripted: ScriptedApi, client: Client) -> None:
    pod = await client.create(PODS, pod_manifest(), "default")
    others: Any = ({"uid": "other"}, {"version": "1"})
    for other in others:
        with pytest.raises(Conflict):
            await client.delete(PODS, "p", "default", **other)
    meta = pod.metadata
    await client.delete(PODS, "p", "default", grace=0, uid=meta.uid, version=meta.resource_version)
    assert scripted.store.snapshot("pods") == []


@pytest.mark.embedded_only("a real server tries for ten seconds before it says so")
async def test_another_pod_of_the_same_name_is_not_evicted(client: Client) -> None:
    await client.create(PODS, pod_manifest(), "default")
    with pytest.raises(Conflict):
        await client.evict("p", "default", uid="other")


async def test_a_pod_is_evicted_if_its_budgets_allow_it(scripted: ScriptedApi, client: Client) -> None:
    pod = await client.create(PODS, pod_manifest(), "default")
    scripted.script("POST", "/pods/p/eviction", answer(429, message="it would violate the pod's disruption budget"))
    with pytest.raises(TooManyRequests, match="disruption budget"):
        await client.evict("p", "default", uid=pod.metadata.uid)
    await client.evict("p", "default", uid=pod.metadata.uid, grace=0)
    assert scripted.store.snapshot("pods") == []


async def test_a_binding_can_be_tried_without_being_made(client: Client) -> None:
    await client.create(PODS, pod_manifest(), "default")
    await client.bind(BINDING, timeout=20, dry_run=True)
    assert (await client.get(PODS, "p", "default")).spec.node_name == ""


# -- a server that is busy


def busy(status: int, seconds: str) -> Fault:
    async def refuse(_: web.Request, __: Next) -> web.StreamResponse:
        return web.json_response({"message": "busy"}, status=status, headers={"Retry-After": seconds})

    return refuse


BUSY: list[Any] = [
    pytest.param(busy(429, "2"), id="429"),
    pytest.param(busy(503, "2"), id="503"),
    pytest.param(answer(429, message="busy", details={"retryAfterSeconds": 2}), id="in the Status"),
]


@pytest.fixture
async def patient(scripted: ScriptedApi) -> AsyncIterator[tuple[Client, FakeClock]]:
    clock = FakeClock(skip=60)
    async with Client(Access(scripted.url), timeout=10, clock=clock) as opened:
        yield opened, clock


@pytest.mark.parametrize("fault", BUSY)
async def test_a_read_waits_as_long_as_a_busy_server_asks_and_a_little_more(
    scripted: ScriptedApi, patient: tuple[Client, FakeClock], fault: Fault
) -> None:
    client, clock = patient
    scripted.registry.create(resources.NODES, "", node_manifest("n1"))
    scripted.script("GET", "/nodes", fault, fault)
    assert (await client.get(NODES, "n1")).key == "n1"
    assert len(clock.asked) == 2
    assert all(2 <= pause <= 2.5 for pause in clock.asked)
    scripted.script("GET", "/nodes", fault)
    assert len((await client.list(NODES)).items) == 1


@pytest.mark.parametrize(
    ("seconds", "pauses"),
    [
        pytest.param("1", 4, id="five tries"),
        pytest.param("4", 2, id="not beyond the time for one call"),
        pytest.param("3600", 0, id="never an hour"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", 0, id="no trust in other clocks"),
    ],
)
async def test_a_read_gives_up_on_a_server_that_stays_busy(
    scripted: ScriptedApi, patient: tuple[Client, FakeClock], seconds: str, pauses: int
) -> None:
    client, clock = patient
    scripted.script("GET", "/nodes/n1", *[busy(429, seconds)] * 9)
    with pytest.raises(TooManyRequests, match="busy"):
        await client.get(NODES, "n1")
    assert len(clock.asked) == pauses


@pytest.mark.parametrize("status", [429, 503])
async def test_a_write_is_never_sent_twice_and_tells_when_to_ask_again(
    scripted: ScriptedApi, patient: tuple[Client, FakeClock], status: int
) -> None:
    client, clock = patient
    scripted.script("POST", "/binding", busy(status, "1"))
    with pytest.raises(KubeError) as raised:
        await client.bind(BINDING, timeout=20)
    assert raised.value.retry_after == 1
    assert (len(scripted.seen), clock.asked) == (1, [])


# -- lists


def page(*names: str, more: str = "") -> Fault:
    items = [{"metadata": {"name": name}} for name in names]
    return body(msgspec.json.encode({"items": items, "metadata": {"resourceVersion": "5", "continue": more}}))


EXPIRED = answer(410, reason="Expired", message="the continue parameter is too old")


@pytest.mark.parametrize("times", [1, 2])
async def test_pages_that_grew_too_old_are_read_again_and_then_all_at_once(
    scripted: ScriptedApi, client: Client, times: int
) -> None:
    for _ in range(times):
        scripted.script("GET", "nodes.limit=500$", page("gone", "stays", more="next"))
        scripted.script("GET", "continue=next", EXPIRED)
    scripted.script("GET", "/nodes", page("new", "stays"))
    listed = await client.list(NODES)
    assert ([node.key for node in listed.items], listed.resource_version) == (["new", "stays"], "5")
    assert [seen.query for seen in scripted.seen][-1] == ("limit=500" if times == 1 else "")
    assert len(scripted.seen) == 2 * times + 1


async def test_a_list_without_pages_that_is_too_old_is_an_error(scripted: ScriptedApi, client: Client) -> None:
    scripted.script("GET", "/nodes", EXPIRED, EXPIRED, EXPIRED)
    with pytest.raises(Gone):
        await client.list(NODES)


# -- counting


async def test_every_request_is_counted_once_by_how_it_ended(scripted: ScriptedApi, client: Client) -> None:
    before = counts.API_REQUESTS.copy()
    await client.create(PODS, pod_manifest(), "default")
    scripted.script("GET", "watch=true", stream(LINES, then_cut=True))
    with pytest.raises(NoAnswer):
        await watched(client)
    with pytest.raises(NotFound):
        await client.delete(PODS, "other", "default")
    scripted.script("PATCH", "/pods/p", cut_before)
    with pytest.raises(NoAnswer):
        await client.patch(PODS, "p", {}, namespace="default")
    ends = ("POST", "201"), ("GET", "200"), ("DELETE", "404"), ("PATCH", "no answer")
    assert counts.API_REQUESTS - before == Counter(ends)


# -- watching


async def test_a_watch_that_says_nothing_for_too_long_is_dead(scripted: ScriptedApi) -> None:
    arrived, never = asyncio.Event(), asyncio.Event()
    scripted.script("GET", "watch=true", held(arrived, never))
    async with Client(Access(scripted.url), silence=20) as client:
        watching = asyncio.create_task(watched(client))
        await arrived.wait()
        with pytest.raises(NoAnswer):
            await hurried(watching)


async def test_a_watch_that_falls_silent_in_the_middle_is_dead_and_what_came_before_counts(
    scripted: ScriptedApi,
) -> None:
    for_ever = asyncio.Event()

    async def speak(request: web.Request, _: Next) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(LINES)
        await for_ever.wait()
        return response

    scripted.script("GET", "watch=true", speak)
    async with Client(Access(scripted.url), silence=20) as client:
        changes = client.watch(NODES, "1")
        heard = [(await anext(changes)).resource_version for _ in CHANGES]
        with pytest.raises(NoAnswer, match="sent no data in a watch for 20 s"):
            await hurried(anext(changes))
    for_ever.set()
    assert heard == [version for _, _, version in CHANGES]


def line(kind: str, name: str = "n1", version: int = 7, **fields: Any) -> bytes:
    metadata = {"name": name, "uid": name, "resourceVersion": str(version), **fields}
    return msgspec.json.encode({"type": kind, "object": {"metadata": metadata}}) + b"\n"


async def watched(client: Client) -> list[tuple[str, str | None, str]]:
    changes = client.watch(NODES, "1")
    return [(c.type, c.object.key if c.object else None, c.resource_version) async for c in changes]


LINES = line("ADDED", "n1", 7) + line("MODIFIED", "né", 8) + line("BOOKMARK", "", 9) + line("DELETED", "n1", 10)
CHANGES = [("ADDED", "n1", "7"), ("MODIFIED", "né", "8"), ("BOOKMARK", None, "9"), ("DELETED", "n1", "10")]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 4096])
async def test_lines_are_read_however_the_stream_is_cut_into_pieces(
    scripted: ScriptedApi, client: Client, size: int
) -> None:
    pieces = [LINES[start : start + size] for start in range(0, len(LINES), size)]
    scripted.script("GET", "watch=true", stream(*pieces))
    assert await watched(client) == CHANGES


async def test_lines_beyond_128_kib_are_read(scripted: ScriptedApi, client: Client) -> None:
    large = line("ADDED", "n1", 7, annotations={"large": "x" * 1_000_000})
    pieces = [large[start : start + 50_000] for start in range(0, len(large), 50_000)]
    scripted.script("GET", "watch=true", stream(*pieces, line("MODIFIED", "n2", 8)))
    assert await watched(client) == [("ADDED", "n1", "7"), ("MODIFIED", "n2", "8")]


async def test_a_line_without_end_is_given_up(scripted: ScriptedApi, client: Client) -> None:
    scripted.script("GET", "watch=true", stream(*[b"x" * 2**20] * 9))
    with pytest.raises(NoAnswer, match="a watch event that is too long"):
        await watched(client)


async def test_a_stream_cut_within_a_line_is_no_answer_and_what_came_before_counts(
    scripted: ScriptedApi, client: Client
) -> None:
    scripted.script("GET", "watch=true", stream(LINES[:-20], then_cut=True))
    changes = client.watch(NODES, "1")
    assert [(await anext(changes)).type for _ in range(3)] == ["ADDED", "MODIFIED", "BOOKMARK"]
    with pytest.raises(NoAnswer):
        await anext(changes)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(answer(410, message="too old"), Gone, id="410 as the answer"),
        pytest.param(
            stream(b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}\n'),
            Gone,
            id="410 in the stream",
        ),
        pytest.param(
            stream(b'{"type":"ERROR","object":{"code":500,"message":"too old"}}\n'), NoAnswer, id="500 in the stream"
        ),
        pytest.param(stream(b"too old\n"), Unreadable, id="a line that is no event"),
        pytest.param(stream(b'{"type":"ADDED","object":7}\n'), Unreadable, id="an object that is none"),
    ],
)
async def test_a_watch_that_goes_wrong_becomes_its_error(
    scripted: ScriptedApi, client: Client, fault: Fault, error: type[KubeError]
) -> None:
    scripted.script("GET", "watch=true", fault)
    with pytest.raises(error):
        await watched(client)
