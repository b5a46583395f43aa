"""Paths as the right that they need and the object that they mean."""

import pytest

from aliquot.endpoints.query.paths import action_of, target_of
from aliquot.kube.reviews import Action

G, V = "metrics.nvidia.com", "v1alpha1"
SEED = f"/apis/{G}/{V}"
TENANTS = "/apis/gpu.aliquot.io/v1alpha1"


def on(verb: str, resource: str, name: str = "", **more: str) -> Action:
    return Action(verb, resource, G, name=name, version=V, **more)


@pytest.mark.parametrize(
    ("method", "path", "query", "action"),
    [
        ("GET", "/apis", {}, Action("get", path="/apis")),
        ("GET", f"/apis/{G}", {}, Action("get", path=f"/apis/{G}")),
        ("GET", SEED, {}, Action("get", path=SEED)),
        ("HEAD", "/openapi/v2", {}, Action("head", path="/openapi/v2")),
        ("POST", "/else", {}, Action("post", path="/else")),
        ("GET", f"{SEED}/gpuinfos", {}, on("list", "gpuinfos")),
        ("GET", f"{SEED}/gpuinfos/", {}, on("list", "gpuinfos")),
        ("GET", f"{SEED}/gpuinfos", {"watch": "true"}, on("watch", "gpuinfos")),
        ("GET", f"{SEED}/gpuinfos", {"watch": "1"}, on("watch", "gpuinfos")),
        ("GET", f"{SEED}/gpuinfos/n1", {}, on("get", "gpuinfos", "n1")),
        ("HEAD", f"{SEED}/gpuinfos/n1", {}, on("get", "gpuinfos", "n1")),
        ("GET", f"{SEED}/gpuinfos", {"fieldSelector": "metadata.name=n1"}, on("list", "gpuinfos", "n1")),
        (
            "GET",
            f"{SEED}/gpuinfos",
            {"fieldSelector": "spec.x=1,metadata.name=n1", "watch": "true"},
            on("watch", "gpuinfos", "n1"),
        ),
        ("GET", f"{SEED}/gpuinfos", {"fieldSelector": "metadata.name!=n1"}, on("list", "gpuinfos")),
        ("GET", f"{SEED}/gpuinfos", {"fieldSelector": "metadata.name=a/b"}, on("list", "gpuinfos")),
        ("GET", f"{SEED}/gpuinfos", {"fieldSelector": f"metadata.name={'x' * 400}"}, on("list", "gpuinfos")),
        ("POST", f"{SEED}/schedule/filter", {}, on("create", "schedule", "filter")),
        ("POST", f"{SEED}/gpuinfos", {}, on("create", "gpuinfos")),
        ("PUT", f"{SEED}/gpuinfos/n1", {}, on("update", "gpuinfos", "n1")),
        ("PATCH", f"{SEED}/gpuinfos/n1", {}, on("patch", "gpuinfos", "n1")),
        ("DELETE", f"{SEED}/gpuinfos/n1", {}, on("delete", "gpuinfos", "n1")),
        ("DELETE", f"{SEED}/gpuinfos", {}, on("deletecollection", "gpuinfos")),
        ("GET", f"{SEED}/gpuinfos/n1/status", {}, on("get", "gpuinfos", "n1", subresource="status")),
        ("GET", f"{SEED}/namespaces/x/gpuinfos", {}, on("list", "gpuinfos", namespace="x")),
        ("GET", f"{SEED}/namespaces/x", {}, on("get", "namespaces", "x")),
        (
            "GET",
            f"{TENANTS}/namespaces/x/podgpus/p",
            {},
            Action("get", "podgpus", "gpu.aliquot.io", namespace="x", name="p", version=V),
        ),
    ],
)
def test_a_path_needs_a_right(method: str, path: str, query: dict[str, str], action: Action) -> None:
    assert action_of(method, path, query) == action


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (f"{SEED}/gpuinfos", ("gpuinfos", "", "")),
        (f"{SEED}/podresources/default.p", ("podresources", "", "default.p")),
        (f"{TENANTS}/podgpus", ("podgpus", "", "")),
        (f"{TENANTS}/namespaces/x/podgpus", ("podgpus", "x", "")),
        (f"{TENANTS}/namespaces/x/podgpus/p", ("podgpus", "x", "p")),
        (f"{TENANTS}/podgpus/p", None),
        (f"{SEED}/namespaces/x/gpuinfos", None),
        (f"{SEED}/gpuinfos/n1/status", None),
        (f"{SEED}/gpuinfos//n1", None),
        (f"{SEED}/schedule/filter", None),
        (f"/api/{G}/{V}/gpuinfos", None),
        ("/", None),
    ],
)
def test_a_path_means_a_resource(path: str, found: tuple[str, str, str] | None) -> None:
    target = target_of(path)
    assert (target and (target.resource.plural, target.namespace, target.name)) == found
