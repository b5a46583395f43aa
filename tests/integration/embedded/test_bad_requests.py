"""Every refusal is a Status with the right code, whatever was sent where."""

from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from aliquot.embedded import EmbeddedCluster
from tests.integration.embedded.client import CONFIG_MAPS, JSON, LEASES, NODES, PODS, Api, config_map, pod

PLAIN = pytest.mark.embedded_only("a real server answers in plain text")
FEWER = pytest.mark.embedded_only("a real server serves more")

POD, BINDING, EVICTION, STATUS = f"{PODS}/web", f"{PODS}/web/binding", f"{PODS}/web/eviction", f"{PODS}/web/status"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WRITES = [
    *(("POST", path) for path in (PODS, NODES, CONFIG_MAPS, LEASES, BINDING, EVICTION, REVIEWS)),
    ("PUT", POD),
    ("PUT", STATUS),
    ("PATCH", POD),
    ("PATCH", STATUS),
    ("DELETE", POD),
]
BROKEN = [b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"metadata": ' + b"[" * 100_000, b'{"metadata": []}']


def media_of(method: str) -> str:
    return "application/merge-patch+json" if method == "PATCH" else JSON


@pytest.mark.parametrize("body", BROKEN, ids=["cut", "list", "null", "text", "bytes", "deep", "shape"])
@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_bodies_that_cannot_be_read(api: Api, method: str, path: str, body: bytes) -> None:
    await api.post(PODS, pod())
    answer = await api.raw(method, path, body, media_of(method))
    if answer.code < 300:
        assert body in (b'{"metadata": []}', b"null")
        assert path in (REVIEWS, POD)
    else:
        answer.unreadable()


@pytest.mark.parametrize(("method", "path"), WRITES)
@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream"])
async def test_bodies_of_unknown_types(api: Api, method: str, path: str, media: str) -> None:
    await api.post(PODS, pod())
    (await api.raw(method, path, b"{}", media)).refused(415, "UnsupportedMediaType")


@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_bodies_that_are_too_large(api: Api, method: str, path: str) -> None:
    await api.post(PODS, pod())
    answer = await api.raw(method, path, b" " * (3 * 1024 * 1024 + 1), media_of(method))
    answer.refused(413, "RequestEntityTooLarge")


WRONG_SHAPES: list[tuple[str, str, dict[str, Any], str]] = [
    ("containers as text", PODS, {**pod(), "spec": {"containers": "main"}}, "spec.containers"),
    ("a label as number", PODS, {"metadata": {"name": "a", "labels": {"x": 1}}}, "metadata.labels"),
    ("a name as number", PODS, {"metadata": {"name": 1}}, "metadata.name"),
    ("a limit as list", PODS, pod(containers=[{"resources": {"limits": {"cpu": []}}}]), ""),
    ("data as numbers", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": 1}}, "data"),
    ("a duration as text", LEASES, {"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": "1"}}, "spec"),
    ("conditions as map", NODES, {"metadata": {"name": "a"}, "status": {"conditions": {}}}, "status.conditions"),
]


@pytest.mark.parametrize(
    ("path", "body", "where"), [case[1:] for case in WRONG_SHAPES], ids=[case[0] for case in WRONG_SHAPES]
)
async def test_fields_of_the_wrong_type(api: Api, path: str, body: dict[str, Any], where: str) -> None:
    assert where in (await api.post(path, body)).refused(400, "BadRequest")


@pytest.mark.parametrize(
    "body",
    [
        {**pod(), "kind": "Node"},
        {**pod(), "apiVersion": "v2"},
        {**pod(), "kind": 7},
        {**pod(), "metadata": {"name": "web", "namespace": "other"}},
    ],
    ids=["kind", "version", "kind as number", "namespace"],
)
async def test_objects_that_do_not_belong_there(api: Api, body: dict[str, Any]) -> None:
    (await api.post(PODS, body)).refused(400, "BadRequest")


async def test_a_new_object_has_no_version(api: Api) -> None:
    answer = await api.post(PODS, {**pod(), "metadata": {"name": "web", "resourceVersion": "1"}})
    assert answer.refused(500, "") == "resourceVersion should not be set on objects to be created"


@pytest.mark.parametrize("path", [PODS, CONFIG_MAPS, LEASES])
async def test_namespaces_must_exist(api: Api, path: str) -> None:
    elsewhere = path.replace("/default/", "/nowhere/")
    body = pod() if path == PODS else {"metadata": {"name": "a"}}
    assert (await api.post(elsewhere, body)).refused(404, "NotFound") == 'namespaces "nowhere" not found'


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/nothing", marks=PLAIN),
        "/api/v2/pods",
        "/api/v1/unknown",
        "/api/v1/pods/web",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/pods/web/unknown",
        "/api/v1/namespaces/default/pods/web/status/more",
        "/api/v1//pods",
        pytest.param("/apis/apps/v1/daemonsets", marks=FEWER),
        pytest.param("/apis/nothing.example/v1", marks=PLAIN),
        pytest.param("/openapi/v3/nothing", marks=PLAIN),
    ],
)
async def test_unknown_paths(api: Api, path: str) -> None:
    (await api.get(path)).refused(404, "NotFound")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", POD),
        ("POST", "/api/v1/pods"),
        ("PUT", PODS),
        ("PATCH", PODS),
        ("GET", BINDING),
        ("GET", REVIEWS),
        ("DELETE", "/api/v1/namespaces"),
        ("DELETE", STATUS),
        ("OPTIONS", PODS),
    ],
)
async def test_methods_that_are_not_served(api: Api, method: str, path: str) -> None:
    (await api.raw(method, path, b"{}", JSON)).refused(405, "MethodNotAllowed")


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "a in b"},
        {"labelSelector": "a=b,,"},
        {"labelSelector": "a>x"},
        {"fieldSelector": "spec.unknown=1"},
        {"fieldSelector": "metadata.name"},
        {"limit": "many"},
        pytest.param({"limit": "-1"}, marks=pytest.mark.embedded_only("a real server takes it for no limit")),
        {"resourceVersion": "abc"},
        {"resourceVersion": "9" * 30},
        {"continue": "????"},
        {"continue": "e30="},
        {"watch": "true", "timeoutSeconds": "soon"},
        pytest.param(
            {"watch": "true", "resourceVersion": "x"}, marks=pytest.mark.embedded_only("a real server answers 500")
        ),
    ],
)
async def test_queries_that_cannot_be_read(api: Api, query: dict[str, str]) -> None:
    (await api.get(PODS, **query)).refused(400, "BadRequest")


async def test_an_unknown_dry_run_is_refused(api: Api) -> None:
    refused = await api.post(PODS, pod(), dryRun="Some")
    assert 'dryRun: Unsupported value: ["Some"]: supported values: "All"' in refused.refused(422, "Invalid")


async def test_renaming_is_refused(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map())
    (await api.put(f"{CONFIG_MAPS}/settings", config_map("other"))).refused(400, "BadRequest")
    for metadata in ({"name": "other"}, {"namespace": "other"}):
        (await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": metadata})).refused(400, "BadRequest")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "GET"])
async def test_missing_objects(api: Api, method: str) -> None:
    body = b'{"metadata":{"name":"web"}}'
    (await api.raw(method, POD, body, media_of(method))).refused(404, "NotFound")


async def test_a_body_without_a_type_is_json(cluster: EmbeddedCluster) -> None:
    async with aiohttp.ClientSession(skip_auto_headers=["Content-Type"]) as session:
        body = b'{"metadata":{"name":"a"}}'
        async with session.post(cluster.url + CONFIG_MAPS, data=body) as response:
            assert response.status == 201


async def test_yaml_is_taken_where_it_is_declared(api: Api) -> None:
    body = b"metadata:\n  name: a\n  annotations: {at: '2026-01-01'}\ndata: {x: '1'}\n"
    assert (await api.raw("POST", CONFIG_MAPS, body, "application/yaml")).expect(201)["data"] == {"x": "1"}
    (await api.raw("POST", CONFIG_MAPS, b"a: [", "application/yaml")).refused(400, "BadRequest")


@pytest.mark.embedded_only("it is given a clock that fails")
async def test_a_fault_of_our_own_is_a_status_too() -> None:
    faulty = False

    def clock() -> datetime:
        if faulty:
            raise ZeroDivisionError
        return datetime(2026, 1, 1, tzinfo=UTC)

    async with EmbeddedCluster(clock=clock) as cluster, aiohttp.ClientSession() as session:
        faulty = True
        with capture_logs() as logs:
            (await Api(session, cluster.url).post(PODS, pod())).refused(500, "InternalError")
    assert [(log["event"], log["method"]) for log in logs] == [("cannot answer", "POST")]


@pytest.mark.embedded_only("a real server answers protobuf")
async def test_protobuf_asked_is_answered_with_json(api: Api) -> None:
    answer = await api.get(PODS, accept="application/vnd.kubernetes.protobuf")
    assert answer.expect(200)["kind"] == "PodList"
