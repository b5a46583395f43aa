"""What `kubectl explain` and other clients read."""

from typing import Any

import pytest

from aliquot.embedded.api.resources import RESOURCES, Resource
from tests.integration.embedded.client import Api


def named(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def schema_of(document: dict[str, Any], resource: Resource) -> dict[str, Any]:
    schemas: dict[str, Any] = document["components"]["schemas"]
    (found,) = [schema for schema in schemas.values() if named(resource) in schema.get(KIND, [])]
    assert isinstance(found, dict)
    return found


KIND = "x-kubernetes-group-version-kind"


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: f"{resource.group}/{resource.plural}")
async def test_every_kind_has_a_schema_that_leads_somewhere(api: Api, resource: Resource) -> None:
    document = (await api.get(f"/openapi/v3{resource.prefix}")).expect(200)
    assert {"apiVersion", "kind", "metadata"} <= set(schema_of(document, resource)["properties"])


@pytest.mark.embedded_only("a real document says more")
async def test_every_reference_is_in_the_document(api: Api) -> None:
    index = (await api.get("/openapi/v3")).expect(200)["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/batch/v1"} <= set(index)
    for entry in index.values():
        document = (await api.get(entry["serverRelativeURL"])).expect(200)
        known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert set(references(document)) <= known


def references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in references(item)]
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for item in value.values() for found in references(item)]
    return []


@pytest.mark.embedded_only("a real document says more")
async def test_fields_have_their_types(api: Api) -> None:
    document = (await api.get("/openapi/v3/api/v1")).expect(200)
    schemas = document["components"]["schemas"]
    spec = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["containers"] == {
        "type": "array",
        "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]},
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    assert spec["nodeSelector"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert spec["hostNetwork"] == {"type": "boolean"}
    probe = schemas["io.k8s.api.core.v1.Probe"]["properties"]
    assert {"httpGet", "exec", "periodSeconds"} <= set(probe), "what stands in place is among them"
