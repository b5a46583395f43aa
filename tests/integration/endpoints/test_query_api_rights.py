"""Callers of the query API see what Kubernetes lets them see."""

from collections.abc import AsyncIterator

import pytest

from aliquot.embedded.api import resources
from aliquot.endpoints.asgi import Caller
from tests.fakes import answer
from tests.integration.endpoints.query import SEED, Query, querying
from tests.integration.room import Room

pytestmark = pytest.mark.embedded_only("the users are the test's own")

TENANTS = "/apis/gpu.aliquot.io/v1alpha1"
MASTER = Caller("kubernetes-admin", frozenset(), ("system:masters",))
TENANT, VIEWER, STRANGER = (Caller(name, frozenset()) for name in ("jane", "vera", "joe"))
RBAC = {"apiGroup": "rbac.authorization.k8s.io"}


def give(room: Room, user: str, group: str, resource: str, namespace: str = "", names: list[str] | None = None) -> None:
    rule = {"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}
    metadata = {"name": f"{user}-{resource}", **({"namespace": namespace} if namespace else {})}
    role = {"metadata": metadata, "rules": [{**rule, **({"resourceNames": names} if names else {})}]}
    kind = "Role" if namespace else "ClusterRole"
    binding = {
        "metadata": metadata,
        "roleRef": {**RBAC, "kind": kind, "name": metadata["name"]},
        "subjects": [{**RBAC, "kind": "User", "name": user}],
    }
    roles = (
        (resources.ROLES, resources.ROLE_BINDINGS)
        if namespace
        else (
            resources.CLUSTER_ROLES,
            resources.CLUSTER_ROLE_BINDINGS,
        )
    )
    for resource_, obj in zip(roles, (role, binding), strict=True):
        room.api.registry.create(resource_, namespace, obj)


@pytest.fixture
async def query(room: Room) -> AsyncIterator[Query]:
    """jane sees the cards of her namespace, vera the node n1."""
    give(room, TENANT.name, "gpu.aliquot.io", "podgpus", "default")
    give(room, VIEWER.name, "metrics.nvidia.com", "gpuinfos", names=["n1"])
    await room.add_node()
    for name, namespace in (("mine", "default"), ("theirs", "kube-system")):
        await room.commit(await room.add_pod(name, 2, namespace=namespace), "n1")
    async with querying(room) as made:
        yield made


@pytest.mark.parametrize(
    ("caller", "path", "parameters", "code"),
    [
        (MASTER, f"{SEED}/podresources", "", 200),
        (MASTER, f"{TENANTS}/podgpus", "watch=true", 200),
        (TENANT, f"{TENANTS}/namespaces/default/podgpus", "", 200),
        (TENANT, f"{TENANTS}/namespaces/default/podgpus", "watch=1", 200),
        (TENANT, f"{TENANTS}/namespaces/default/podgpus/mine", "", 200),
        (TENANT, f"{TENANTS}/namespaces/kube-system/podgpus", "", 403),
        (TENANT, f"{TENANTS}/namespaces/kube-system/podgpus/theirs", "", 403),
        (TENANT, f"{TENANTS}/podgpus", "", 403),
        (TENANT, f"{SEED}/podresources", "fieldSelector=spec.pod_namespace=default", 403),
        (VIEWER, f"{SEED}/gpuinfos/n1", "", 200),
        (VIEWER, f"{SEED}/gpuinfos", "fieldSelector=metadata.name%3Dn1&watch=true", 200),
        (VIEWER, f"{SEED}/gpuinfos", "fieldSelector=metadata.name%3Dn2", 403),
        (VIEWER, f"{SEED}/gpuinfos", "", 403),
        (STRANGER, f"{SEED}/gpuinfos", "", 403),
        (STRANGER, f"{SEED}/gpuinfos", "watch=true", 403),
        (STRANGER, f"{SEED}/nothing", "", 403),
        (STRANGER, SEED, "", 403),
    ],
)
async def test_rights(query: Query, caller: Caller, path: str, parameters: str, code: int) -> None:
    status, body = await query.ask_as(caller, "GET", path, parameters)
    assert status == code, body
    if code == 403:
        assert (body["kind"], body["reason"]) == ("Status", "Forbidden")
        assert f'User "{caller.name}" cannot' in body["message"]


async def test_a_list_of_one_name_shows_only_that_one(query: Query) -> None:
    status, body = await query.ask_as(VIEWER, "GET", f"{SEED}/gpuinfos", "fieldSelector=metadata.name%3Dn1")
    assert status == 200
    assert [item["metadata"]["name"] for item in body["items"]] == ["n1"]


async def test_no_caller_sees_anything_while_rights_cannot_be_reviewed(query: Query) -> None:
    query.room.api.script("POST", "subjectaccessreviews", answer(500))
    status, body = await query.ask_as(STRANGER, "GET", f"{SEED}/gpuinfos")
    assert (status, body["reason"]) == (503, "ServiceUnavailable")
