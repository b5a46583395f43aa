"""A real server's objects, read and changed at once, where tests do that with the embedded server's own parts."""

import http.client
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.eventlog import Stored, encoded
from aliquot.embedded.api.objects import Object
from aliquot.embedded.api.resources import BY_COLLECTION, CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, NODES, PODS, Resource

_KEPT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_FIRST_REFUSAL = 400


class Asking:
    """Plain requests, one at a time."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)

    def close(self) -> None:
        self._connection.close()

    def __call__(self, method: str, path: str, body: Any = None, *, content: str = "application/json") -> Any:
        sent = None if body is None else msgspec.json.encode(body)
        self._connection.request(method, path, sent, {"Content-Type": content, "Accept": "application/json"})
        response = self._connection.getresponse()
        answer = msgspec.json.decode(response.read())
        assert response.status < _FIRST_REFUSAL, (method, path, answer)
        return answer


class RealStore:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    @property
    def revision(self) -> int:
        return int(self._ask("GET", "/api/v1/pods?limit=1")["metadata"]["resourceVersion"])

    def snapshot(self, collection: str) -> list[Stored]:
        listed = self._ask("GET", _path(BY_COLLECTION[collection]))
        return [_stored(item) for item in listed["items"]]


class RealRegistry:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        return _stored(self._ask("GET", _path(resource, namespace, name)))

    def create(self, resource: Resource, namespace: str, body: Object) -> Stored:
        return _stored(self._ask("POST", _path(resource, namespace), _typed(resource, body)))

    def delete(self, resource: Resource, namespace: str, name: str, request: DeleteRequest) -> Stored:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if request.grace_seconds is not None:
            options["gracePeriodSeconds"] = request.grace_seconds
        return _stored(self._ask("DELETE", _path(resource, namespace, name), options))

    def rewrite(self, resource: Resource, namespace: str, name: str, change: Callable[[Object], Object]) -> Stored:
        """The object through its own path and its status through the other."""
        before = self.get(resource, namespace, name).obj
        wanted = _typed(resource, change(before))
        path = _path(resource, namespace, name)
        after = self._ask("PUT", path, wanted)
        if wanted.get("status") != after.get("status"):
            status = {**after, "status": wanted.get("status") or {}}
            after = self._ask("PUT", f"{path}/status", status)
        return _stored(after)

    def clear(self) -> None:
        """Everything that a test can have made is gone."""
        for resource in (PODS, NODES, CONFIG_MAPS, EVENTS, LEASES, *_OTHERS):
            for obj in self._listed(resource):
                self._remove(resource, obj)
        for obj in self._listed(NAMESPACES):
            if obj["metadata"]["name"] not in _KEPT_NAMESPACES:
                self._remove_namespace(obj)

    def _listed(self, resource: Resource) -> Iterator[Any]:
        for obj in self._ask("GET", _path(resource))["items"] or ():
            if obj["metadata"].get("namespace", "") not in _KEPT_NAMESPACES[1:]:
                yield obj

    def _remove(self, resource: Resource, obj: Any) -> None:
        meta = obj["metadata"]
        path = _path(resource, meta.get("namespace", ""), meta["name"])
        if meta.get("finalizers"):
            patch = {"metadata": {"finalizers": None}}
            self._ask("PATCH", path, patch, content="application/merge-patch+json")
            if meta.get("deletionTimestamp") and resource is not PODS:
                return
        try:
            self._ask("DELETE", f"{path}?gracePeriodSeconds=0")
        except AssertionError as error:  # the finalizer was all that kept it
            if error.args[0][2]["code"] != 404:
                raise

    def _remove_namespace(self, obj: Any) -> None:
        """What kube-controller-manager does in a cluster."""
        path = f"{_path(NAMESPACES)}/{obj['metadata']['name']}"
        if not obj["metadata"].get("deletionTimestamp"):
            obj = self._ask("DELETE", path)
        self._ask("PUT", f"{path}/finalize", {**obj, "spec": {"finalizers": []}})


_OTHERS = [
    resource
    for resource in (BY_COLLECTION.get(name) for name in ("secrets", "services", "serviceaccounts"))
    if resource is not None
]


def _path(resource: Resource, namespace: str = "", name: str = "") -> str:
    where = f"namespaces/{namespace}/" if resource.namespaced and namespace else ""
    return "/".join(filter(None, (resource.prefix, f"{where}{resource.plural}", name)))


def _typed(resource: Resource, body: Object) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _stored(obj: Any) -> Stored:
    return encoded(obj, int(obj["metadata"].get("resourceVersion", "0")))
