"""The client: every way in which an answer can go wrong becomes one of our errors."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.embedded.api import resources
from aliquot.kube import NODES, PODS, Access, ApiError, Client, Conflict, KubeError, NoAnswer, NotFound, NotSent
from aliquot.kube.errors import Gone, Unreadable
from tests.factories import node_manifest, pod_manifest
from tests.fakes import Fault, ScriptedApi, answer, body, cut_after, cut_before, held, stream

BINDING = {"metadata": {"name": "p", "namespace": "default"}, "target": {"name": "n1"}}

ERRORS: list[Any] = [
    pytest.param(answer(400, message="why"), ApiError, 400, id="400"),
    pytest.param(answer(401, message="why"), ApiError, 401, id="401"),
    pytest.param(answer(403, message="why"), ApiError, 403, id="403"),
    pytest.param(answer(404, message="why"), NotFound, 404, id="404"),
    pytest.param(answer(409, message="why"), Conflict, 409, id="409"),
    pytest.param(answer(410, message="why"), Gone, 410, id="410"),
    pytest.param(answer(422, message="why"), ApiError, 422, id="422"),
    pytest.param(answer(429, message="why"), ApiError, 429, id="429"),
    pytest.param(answer(500, message="why"), NoAnswer, None, id="500: it may have been done"),
    pytest.param(answer(503, message="why"), NoAnswer, None, id="503: it may have been done"),
    pytest.param(body(b"why, in plain text", 404), NotFound, 404, id="404 without a Status"),
    pytest.param(body(b"why \xff", 400), ApiError, 400, id="400 with no UTF-8"),
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
    with pytest.raises(Unreadable, match="the API server sent what is no"):
        await client.get(NODES, "n1")


@pytest.mark.parametrize("fault", [cut_before, cut_after], ids=["before it was done", "after it was done"])
async def test_a_connection_cut_after_the_request_is_no_answer(
    scripted: ScriptedApi, client: Client, fault: Fault
) -> None:
    scripted.registry.create(resources.PODS, "default", pod_manifest())
    scripted.script("POST", "/binding", fault)
    with pytest.raises(NoAnswer, match="POST api/v1/namespaces/default/pods/p/binding got no answer"):
        await client.bind(BINDING, timeout=5)


async def test_silence_is_no_answer_after_the_time_given(scripted: ScriptedApi, client: Client) -> None:
    arrived, never = asyncio.Event(), asyncio.Event()
    scripted.script("POST", "/binding", held(arrived, never))
    with pytest.raises(NoAnswer):
        await client.bind(BINDING, timeout=0.05)
    assert arrived.is_set()


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
    assert [c.type for c in pod.status.conditions or ()] == ["Ready", "Other"]
    await client.delete(PODS, "p", "default", grace=0)
    assert scripted.store.snapshot("pods") == []


CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "get": lambda client: client.get(PODS, "p", "default"),
    "patch": lambda client: client.patch(PODS, "p", {}, namespace="default"),
    "delete": lambda client: client.delete(PODS, "p", "default"),
    "bind": lambda client: client.bind(BINDING, timeout=5),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_what_is_not_there_is_not_found(client: Client, call: Callable[[Client], Awaitable[Any]]) -> None:
    with pytest.raises(NotFound, match='pods "p" not found'):
        await call(client)


async def test_a_patch_with_another_uid_is_refused(scripted: ScriptedApi, client: Client) -> None:
    """As the real API server does: the patch can only be taken by the pod that was meant."""
    scripted.registry.create(resources.PODS, "default", pod_manifest())
    with pytest.raises(ApiError, match="field is immutable"):
        await client.patch(PODS, "p", {"metadata": {"uid": "other"}}, namespace="default")


# -- watching


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
    with pytest.raises(NoAnswer, match="a watch event without end"):
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
