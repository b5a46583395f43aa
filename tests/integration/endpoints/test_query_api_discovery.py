"""Discovery and OpenAPI of the query API, as kube-apiserver's aggregator and kubectl ask for them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aliquot.model.load import CardLoad, NodeLoad, PodLoad
from tests.integration.endpoints.query import SEED, Query, querying
from tests.integration.room import Room

pytestmark = pytest.mark.embedded_only("the API server is in front of it, in tests/e2e")

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = V2.replace("v=v2", "v=v2beta1")
PROTOBUF = "application/vnd.kubernetes.protobuf"
GROUPS = {"metrics.nvidia.com": "v1alpha1", "nvidia-gpu-scheduler": "v1", "gpu.aliquot.io": "v1alpha1"}


@pytest.fixture
async def query(room: Room) -> AsyncIterator[Query]:
    async with querying(room) as made:
        yield made


@pytest.mark.parametrize(
    ("accept", "content", "kind", "version"),
    [
        pytest.param(V2, V2, "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2", id="aggregator since 1.30"),
        pytest.param(V2BETA1, V2BETA1, "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2beta1", id="before 1.30"),
        pytest.param(
            f"{V2},{V2BETA1},application/json", V2, "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2", id="all"
        ),
        pytest.param("application/json", "application/json", "APIGroupList", "v1", id="legacy"),
        pytest.param(f"{PROTOBUF},application/json", "application/json", "APIGroupList", "v1", id="protobuf first"),
        pytest.param(f"{V2};q=0.5,application/json", "application/json", "APIGroupList", "v1", id="by quality"),
    ],
)
async def test_the_groups_in_each_form(query: Query, accept: str, content: str, kind: str, version: str) -> None:
    status, headers, body = await query.ask("GET", "/apis", {"Accept": accept})
    assert (status, headers["Content-Type"]) == (200, content)
    assert (body["kind"], body["apiVersion"]) == (kind, version)


async def test_aggregated_discovery_says_how_to_ask_for_each_resource(query: Query) -> None:
    items = (await query.get("/apis", V2))["items"]
    assert {item["metadata"]["name"]: item["versions"][0]["version"] for item in items} == GROUPS
    resources = {each["resource"]: each for item in items for each in item["versions"][0]["resources"]}
    assert resources["gpuinfos"] == {
        "resource": "gpuinfos",
        "responseKind": {"group": "metrics.nvidia.com", "version": "v1alpha1", "kind": "GpuInfo"},
        "scope": "Cluster",
        "singularResource": "gpuinfo",
        "verbs": ["get", "list", "watch"],
        "shortNames": ["gpui"],
        "categories": ["gpu"],
    }
    assert resources["podgpus"]["scope"] == "Namespaced"
    assert resources.keys() == {"gpuinfos", "podresources", "gpunodes", "gpupods", "podgpus"}


@pytest.mark.parametrize("path", ["/apis", SEED, "/openapi/v2", "/openapi/v3"])
async def test_a_client_gets_nothing_that_it_cannot_read(query: Query, path: str) -> None:
    status, _, body = await query.ask("GET", path, {"Accept": PROTOBUF})
    assert (status, body["kind"], body["reason"]) == (406, "Status", "NotAcceptable")


@pytest.mark.parametrize("path", ["/apis", SEED, "/apis/metrics.nvidia.com", "/openapi/v2", "/openapi/v3", "/version"])
async def test_a_document_that_has_not_changed_is_not_sent_again(query: Query, path: str) -> None:
    _, headers, first = await query.ask("GET", path)
    status, _, body = await query.ask("GET", path, {"If-None-Match": headers["ETag"]})
    assert (status, body) == (304, None)
    status, _, body = await query.ask("GET", path, {"If-None-Match": '"another"'})
    assert (status, body) == (200, first)


async def test_each_group_lists_its_resources(query: Query) -> None:
    for group, version in GROUPS.items():
        found = await query.get(f"/apis/{group}")
        assert found["preferredVersion"] == {"groupVersion": f"{group}/{version}", "version": version}
        listed = await query.get(f"/apis/{group}/{version}")
        assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", f"{group}/{version}")
        assert all(each["verbs"] == ["get", "list", "watch"] for each in listed["resources"])


async def test_documents_are_there_before_the_first_object(room: Room) -> None:
    async with querying(room, complete=False) as query:
        assert (await query.get(SEED))["kind"] == "APIResourceList"
        status, headers, body = await query.ask("GET", f"{SEED}/gpuinfos")
        assert (status, body["reason"], headers["Retry-After"]) == (503, "ServiceUnavailable", "1")


async def test_openapi_v3_has_a_document_per_group_with_its_hash(query: Query) -> None:
    paths = (await query.get("/openapi/v3"))["paths"]
    assert paths.keys() == {f"apis/{group}/{version}" for group, version in GROUPS.items()}
    for path, entry in paths.items():
        url, _, hashed = entry["serverRelativeURL"].partition("?hash=")
        status, headers, body = await query.ask("GET", url, hash=hashed)
        assert (status, body["openapi"]) == (200, "3.0.0")
        assert headers["ETag"] == f'"{hashed}"'
        assert url == f"/openapi/v3/{path}"


async def test_every_reference_in_openapi_leads_somewhere(query: Query) -> None:
    v2 = await query.get("/openapi/v2")
    v3 = [await query.get(f"/openapi/v3/apis/{group}/{version}") for group, version in GROUPS.items()]
    for document in (v2, *v3):
        for reference in references(document):
            found: Any = document
            for step in reference.removeprefix("#/").split("/"):
                found = found[step]
            assert found["type"] == "object"


async def test_the_schemas_have_every_field_of_the_objects(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod("train", 3)
    await room.commit(pod, "n1")
    async with querying(room) as query:
        uid, uuid = pod.metadata.uid, "GPU-n1-0"
        load = NodeLoad(2.0, {uuid: CardLoad(0.5, 2**30)}, {uid: {uuid: PodLoad(2**30, 0.5)}})
        await query.heartbeat("n1", "2023-11-14T22:30:00.000000Z")
        await query.room.clock.move(31)
        await query.heartbeat("n1", "2023-11-14T22:30:31.000000Z", load)
        definitions = (await query.get("/openapi/v2"))["definitions"]
        kinds = {each["x-kubernetes-group-version-kind"][0]["kind"]: each for each in definitions.values()}
        for group, version in GROUPS.items():
            for resource in (await query.get(f"/apis/{group}/{version}"))["resources"]:
                items = (await query.get(f"/apis/{group}/{version}/{resource['name']}"))["items"]
                assert items, resource
                for item in items:
                    assert not undescribed(item, kinds[resource["kind"]], resource["kind"])


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for inner in value.values() for found in references(inner)]
    return [found for inner in value for found in references(inner)] if isinstance(value, list) else []


def undescribed(value: Any, schema: Any, path: str) -> list[str]:
    """The fields of a value that its schema does not have, or has with another type."""
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if type(value) is not types[schema["type"]]:
        return [path]
    if isinstance(value, list):
        return [name for inner in value for name in undescribed(inner, schema["items"], f"{path}[]")]
    if not isinstance(value, dict) or path.endswith(".metadata"):
        return []
    found: list[str] = []
    for name, inner in value.items():
        known = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
        found += [f"{path}.{name}"] if known is None else undescribed(inner, known, f"{path}.{name}")
    return found
