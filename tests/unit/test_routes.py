"""Answers for unknown paths and unknown methods."""

import pytest

from aliquot.endpoints import asgi


async def handler(_: asgi.Call) -> asgi.Response:
    return asgi.text("")


ROUTES = {("POST", "/a/b"): handler, ("GET", "/a/b/*"): handler, ("GET", "/a/c"): handler, ("PUT", "/a/c"): handler}


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        pytest.param("PUT", "/a/b", 405, b"POST, OPTIONS", id="another method"),
        pytest.param("POST", "/a/c", 405, b"GET, PUT, OPTIONS", id="another than two methods"),
        pytest.param("OPTIONS", "/a/b", 200, b"POST, OPTIONS", id="asked which"),
        pytest.param("OPTIONS", "/a/b/c", 200, b"GET, OPTIONS", id="asked which with a piece"),
    ],
)
def test_the_answer_lists_the_methods_of_the_path(method: str, path: str, status: int, allow: bytes) -> None:
    answer = asgi.Routes(ROUTES).find(method, path)
    assert isinstance(answer, asgi.Response)
    nosniff = {} if status == 200 else {b"x-content-type-options": b"nosniff"}
    assert (answer.status, dict(answer.headers)) == (status, {b"allow": allow, **nosniff})
    assert answer.body == (b"" if status == 200 else b"Method Not Allowed\n")


def test_unmatched_requests_go_to_the_fallback_route() -> None:
    async def elsewhere(_: asgi.Call) -> asgi.Response:
        return asgi.text("elsewhere", 404)

    routes = asgi.Routes({**ROUTES, asgi.OTHERWISE: elsewhere})
    assert routes.find("GET", "/x") == (elsewhere, "")
    assert routes.find("POST", "/a/b/") == (handler, "")
    refused = routes.find("GET", "/a/b")
    assert isinstance(refused, asgi.Response)
    assert refused.status == 405


@pytest.mark.parametrize(
    ("path", "tail"), [("/e/x/y", "x/y"), ("/e/x/y/", "x/y"), ("/e/x", None), ("/e//y", None), ("/e/x/y/z", None)]
)
def test_a_route_may_take_two_segments(path: str, tail: str | None) -> None:
    found = asgi.Routes({("GET", "/e/*/*"): handler}).find("GET", path)
    assert (found[1] if isinstance(found, tuple) else None) == tail
