"""Routes on plain ASGI."""

from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.endpoints import asgi
from aliquot.endpoints.limits import Gate


async def ask(routes: asgi.Routes, method: str, path: str, *pieces: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    """The answer to a request whose body arrives in pieces."""
    sent: list[Any] = []
    messages = _messages(pieces or (b"",))

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    await Gate(routes)({"type": "http", "method": method, "path": path}, receive, send)
    start, body = sent
    return start["status"], dict(start["headers"]), body["body"]


def _messages(pieces: tuple[bytes, ...]) -> Iterator[dict[str, Any]]:
    for place, piece in enumerate(pieces, start=1):
        yield {"type": "http.request", "body": piece, "more_body": place < len(pieces)}


async def echo(call: asgi.Call) -> asgi.Response:
    return asgi.json([call.tail, call.body.decode()])


ROUTES = asgi.Routes({("POST", "/a/b"): echo, ("GET", "/a/b/*"): echo, ("GET", "/"): echo})


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        pytest.param("POST", "/a/b", 200, b'["",""]', id="an exact path"),
        pytest.param("POST", "/a/b/", 200, b'["",""]', id="a trailing slash"),
        pytest.param("GET", "/a/b/c", 200, b'["c",""]', id="one more piece"),
        pytest.param("GET", "/", 200, b'["",""]', id="the root"),
        pytest.param("GET", "/a/b/c/d", 404, b"404 page not found\n", id="two more pieces"),
        pytest.param("GET", "/a", 404, b"404 page not found\n", id="a piece less"),
        pytest.param("GET", "/a/b", 405, b"Method Not Allowed\n", id="another method"),
        pytest.param("POST", "/a/b/c", 405, b"Method Not Allowed\n", id="another method with a piece"),
    ],
)
async def test_a_request_goes_to_the_handler_of_its_path(method: str, path: str, status: int, body: bytes) -> None:
    answered, headers, content = await ask(ROUTES, method, path)
    assert (answered, content) == (status, body)
    assert headers[b"content-length"] == b"%d" % len(body)


async def test_a_body_in_pieces_is_joined() -> None:
    assert (await ask(ROUTES, "POST", "/a/b", b"one ", b"", b"two"))[2] == b'["","one two"]'


async def test_a_body_beyond_the_limit_reaches_no_handler() -> None:
    called = []

    async def handler(_: asgi.Call) -> asgi.Response:
        called.append(1)
        return asgi.text("")

    piece = bytes(2**24)
    status, _, body = await ask(asgi.Routes({("POST", "/"): handler}), "POST", "/", *[piece] * 9)
    assert (status, body, called) == (413, b"the body is larger than 134217728 bytes", [])


async def test_the_callback_after_an_answer_runs_once_it_is_sent() -> None:
    order: list[str] = []

    async def handler(_: asgi.Call) -> asgi.Response:
        return asgi.json({}, after=lambda: order.append("after"))

    async def send(message: Any) -> None:
        order.append(message["type"])

    async def receive() -> Any:
        return {"type": "http.request"}

    await Gate(asgi.Routes({("GET", "/"): handler}))({"type": "http", "method": "GET", "path": "/"}, receive, send)
    assert order == ["http.response.start", "http.response.body", "after"]
