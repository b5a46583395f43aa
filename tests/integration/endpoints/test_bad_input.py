"""Bad input at each endpoint gets a clear answer and changes nothing."""

from typing import Any

import msgspec
import pytest

from tests.factories import pod_manifest
from tests.integration.endpoints.endpoint import BIND, FILTER, INSPECT, Endpoint, bind_args

DEEP = b'{"Pod":' + b"[" * 100_000


BODIES = [
    pytest.param(b"", "EOF", id="an empty body"),
    pytest.param(b" \n ", "EOF", id="only spaces"),
    pytest.param(b"{", "cannot decode the body: Input data was truncated", id="half a body"),
    pytest.param(b"nonsense", "cannot decode the body", id="not JSON"),
    pytest.param(b"[1]", "cannot decode the body: Expected `object`, got `array`", id="a list"),
    pytest.param(b"null", "cannot decode the body: Expected `object`, got `null`", id="null"),
    pytest.param(b'"text"', "cannot decode the body", id="a string"),
    pytest.param(b"\xff\xfe", "cannot decode the body", id="not UTF-8"),
    pytest.param(b'{"Pod":1}\n{"Pod":2}', "cannot decode the body", id="two bodies"),
    pytest.param(DEEP, "cannot decode the body", id="a hundred thousand brackets"),
]


@pytest.mark.parametrize(("body", "text"), BODIES)
@pytest.mark.parametrize("path", [FILTER, BIND], ids=["filter", "bind"])
async def test_a_malformed_body_is_answered_with_an_error(
    endpoint: Endpoint, path: str, body: bytes, text: str
) -> None:
    await endpoint.room.add_node()
    before = endpoint.fingerprint()
    reply = await endpoint.send("POST", path, body)
    assert reply.status == 200
    assert reply.json["Error"].startswith(text)
    assert [value for key, value in reply.json.items() if key != "Error" and value is not None] == []
    assert endpoint.fingerprint() == before


FILTER_ARGS: list[Any] = [
    pytest.param({}, "arg or pod is nil", id="no pod"),
    pytest.param({"Pod": None, "NodeNames": []}, "arg or pod is nil", id="a null pod"),
    pytest.param({"Pod": pod_manifest()}, "cannot get node names", id="no nodes"),
    pytest.param({"Pod": pod_manifest(), "Nodes": None, "NodeNames": None}, "cannot get node names", id="null nodes"),
    pytest.param({"Pod": "p", "NodeNames": []}, "cannot decode Pod: Expected `object`", id="a pod that is text"),
    pytest.param({"Pod": {}, "NodeNames": []}, "cannot decode Pod", id="a pod without metadata"),
    pytest.param(
        {"Pod": pod_manifest("../../nodes/n1"), "NodeNames": []},
        "the pod's name '../../nodes/n1' is not a valid Kubernetes object name",
        id="a path as the pod's name",
    ),
    pytest.param(
        {"Pod": pod_manifest(namespace="a?b"), "NodeNames": []},
        "the pod's namespace 'a?b' is not a valid Kubernetes object name",
        id="a query as the pod's namespace",
    ),
    pytest.param({"Pod": pod_manifest(), "NodeNames": "n1"}, "cannot decode NodeNames", id="a name instead of a list"),
    pytest.param({"Pod": pod_manifest(), "NodeNames": [1]}, "cannot decode NodeNames", id="names that are numbers"),
    pytest.param({"Pod": pod_manifest(), "Nodes": [1]}, "cannot decode Nodes", id="nodes without a list object"),
    pytest.param({"Pod": pod_manifest(), "Nodes": {"items": [1]}}, "cannot decode Nodes", id="a node that is a number"),
    pytest.param(
        {"Pod": pod_manifest(gpu_mem=[3]), "NodeNames": []},
        "cannot decode Pod: Expected `int | float | str`, got `array`",
        id="a list as quantity",
    ),
    pytest.param({"Pod": pod_manifest(gpu_mem={}), "NodeNames": []}, "cannot decode Pod", id="a map as quantity"),
]


@pytest.mark.parametrize(("args", "text"), FILTER_ARGS)
async def test_filter_arguments_of_wrong_types_are_answered_with_an_error(
    endpoint: Endpoint, args: dict[str, Any], text: str
) -> None:
    reply = await endpoint.post(FILTER, args)
    assert reply.status == 200
    assert reply.json["Error"].startswith(text)
    assert reply.json["NodeNames"] is None


async def test_nodes_that_are_not_utf_8_are_not_returned(endpoint: Endpoint) -> None:
    """They would be returned as bytes, and nobody could decode the answer."""
    await endpoint.room.add_node()
    nodes = {"items": [{"metadata": {"name": "n1", "labels": {"a": "ä"}}}]}
    body = msgspec.json.encode({"Pod": pod_manifest(), "Nodes": nodes})
    good = await endpoint.send("POST", FILTER, body)
    assert good.json["Nodes"] == nodes
    bad = await endpoint.send("POST", FILTER, body.replace("ä".encode(), b"\xff"))
    assert bad.json["Error"] == "cannot decode Nodes: the body is not UTF-8"


BIND_ARGS: list[Any] = [
    pytest.param({"PodName": ""}, "PodName is missing", id="no name"),
    pytest.param({"PodNamespace": ""}, "PodNamespace is missing", id="no namespace"),
    pytest.param({"PodUID": ""}, "PodUID is missing", id="no UID"),
    pytest.param({"Node": ""}, "Node is missing", id="no node"),
    pytest.param({"PodName": 7}, "cannot decode PodName: Expected `str`, got `int`", id="a name that is a number"),
    pytest.param({"Node": None}, "cannot decode Node: Expected `str`, got `null`", id="a null node"),
    pytest.param({"PodName": "ghost"}, 'pods "ghost" not found', id="an unknown pod"),
    pytest.param({"PodNamespace": "nowhere"}, 'pods "p" not found', id="an unknown namespace"),
    pytest.param({"Node": "ghost"}, 'node "ghost" not found', id="an unknown node"),
    pytest.param({"PodName": "../p"}, "PodName '../p' is not a valid Kubernetes object name", id="a path as name"),
    pytest.param(
        {"PodName": "p?watch=true"},
        "PodName 'p?watch=true' is not a valid Kubernetes object name",
        id="a query as name",
    ),
    pytest.param(
        {"PodNamespace": ".."}, "PodNamespace '..' is not a valid Kubernetes object name", id="a path as namespace"
    ),
    pytest.param({"Node": "n1/status"}, "Node 'n1/status' is not a valid Kubernetes object name", id="a path as node"),
    pytest.param(
        {"PodName": "p" * 300},
        f"PodName '{'p' * 64}' is not a valid Kubernetes object name",
        id="a name that is too long",
    ),
]


@pytest.mark.parametrize(("fields", "text"), BIND_ARGS)
async def test_invalid_bind_arguments_are_answered_with_an_error(
    endpoint: Endpoint, fields: dict[str, Any], text: str
) -> None:
    await endpoint.room.add_node()
    pod = await endpoint.room.add_pod()
    before = endpoint.fingerprint()
    reply = await endpoint.post(BIND, bind_args(pod) | fields)
    assert reply.status == 200
    assert reply.json["Error"].startswith(text)
    assert endpoint.fingerprint() == before


async def test_a_wrong_uid_is_refused_without_revealing_the_right_one(endpoint: Endpoint) -> None:
    await endpoint.room.add_node()
    pod = await endpoint.room.add_pod()
    before = endpoint.fingerprint()
    expected = "pod default/p has a different UID than this call names"
    assert await endpoint.bind(pod, PodUID="other") == expected
    assert endpoint.fingerprint() == before


async def test_bind_arguments_in_lower_case_are_read(endpoint: Endpoint) -> None:
    await endpoint.room.add_node()
    pod = await endpoint.room.add_pod()
    await endpoint.pass_filter(pod)
    reply = await endpoint.post(BIND, {name.lower(): value for name, value in bind_args(pod).items()})
    assert reply.json == {"Error": ""}


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        pytest.param("GET", FILTER, 405, "Method Not Allowed\n", id="filter by GET"),
        pytest.param("PUT", BIND, 405, "Method Not Allowed\n", id="bind by PUT"),
        pytest.param("POST", INSPECT, 405, "Method Not Allowed\n", id="inspect by POST"),
        pytest.param("DELETE", f"{INSPECT}/n1", 405, "Method Not Allowed\n", id="inspect a node by DELETE"),
        pytest.param("GET", "/gpushare-scheduler", 404, "404 page not found\n", id="the prefix alone"),
        pytest.param("GET", "/", 404, "404 page not found\n", id="the root"),
        pytest.param("POST", "/gpushare-scheduler/preempt", 404, "404 page not found\n", id="an unknown verb"),
        pytest.param("GET", f"{INSPECT}/n1/more", 404, "404 page not found\n", id="a path with too many segments"),
    ],
)
async def test_unknown_paths_and_methods_get_404_and_405(
    endpoint: Endpoint, method: str, path: str, status: int, text: str
) -> None:
    reply = await endpoint.send(method, path)
    assert (reply.status, reply.text) == (status, text)


async def test_a_trailing_slash_changes_nothing(endpoint: Endpoint) -> None:
    assert (await endpoint.send("GET", f"{INSPECT}/")).json == {"nodes": []}


async def test_the_endpoint_still_serves_after_all_that(endpoint: Endpoint) -> None:
    await endpoint.room.add_node()
    for body in (DEEP, b"{", b"\xff"):
        await endpoint.send("POST", FILTER, body)
    reply = await endpoint.send("POST", FILTER, msgspec.json.encode({"Pod": pod_manifest(), "NodeNames": ["n1"]}))
    assert reply.json["NodeNames"] == ["n1"]
