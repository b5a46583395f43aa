"""What clients ask before they ask for objects."""

import pytest

from aliquot.embedded.api.resources import RESOURCES
from tests.integration.embedded.client import Api


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health(api: Api, path: str) -> None:
    assert (await api.get(path)).expect(200) == b"ok"


async def test_the_version(api: Api) -> None:
    version = (await api.get("/version")).expect(200)
    assert (version["major"], version["minor"]) == ("1", "37")
    assert version["gitVersion"].startswith("v1.37.")


@pytest.mark.embedded_only("a real server serves more")
async def test_groups(api: Api) -> None:
    assert (await api.get("/api")).expect(200)["versions"] == ["v1"]
    groups = (await api.get("/apis")).expect(200)["groups"]
    assert {group["name"] for group in groups} == {
        "admissionregistration.k8s.io",
        "apps",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "batch",
        "coordination.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "scheduling.k8s.io",
    }
    group = (await api.get("/apis/coordination.k8s.io")).expect(200)
    assert (group["kind"], group["preferredVersion"]["groupVersion"]) == ("APIGroup", "coordination.k8s.io/v1")


@pytest.mark.embedded_only("a real server serves more")
async def test_resources(api: Api) -> None:
    resources = {r["name"]: r for r in (await api.get("/api/v1")).expect(200)["resources"]}
    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods"]["singularName"] == "pod"
    assert resources["nodes"]["namespaced"] is False
    assert resources["pods/binding"]["kind"] == "Binding"
    assert (resources["pods/eviction"]["group"], resources["pods/eviction"]["version"]) == ("policy", "v1")
    names = {r["name"] for r in (await api.get("/apis/policy/v1")).expect(200)["resources"]}
    assert names == {"poddisruptionbudgets", "poddisruptionbudgets/status"}


@pytest.mark.embedded_only("a real server serves more")
async def test_discovery_names_every_resource(api: Api) -> None:
    found = set()
    for prefix in {resource.prefix for resource in RESOURCES}:
        listed = (await api.get(prefix)).expect(200)
        group, _, version = listed["groupVersion"].rpartition("/")
        found |= {(group, version, r["name"]) for r in listed["resources"] if "/" not in r["name"]}
    assert found == {(resource.group, resource.version, resource.plural) for resource in RESOURCES}


@pytest.mark.embedded_only("a real server serves more")
async def test_openapi_lets_kubectl_leave_validation_to_the_server(api: Api) -> None:
    index = (await api.get("/openapi/v3")).expect(200)["paths"]
    document = (await api.get(index["api/v1"]["serverRelativeURL"])).expect(200)
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert [parameter["name"] for parameter in patch["parameters"]] == ["fieldValidation"]
