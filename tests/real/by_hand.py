"""A real server's objects, read and changed at once, where tests do that with the embedded server's own parts."""

import http.client
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from aliquot.apiserver.eventlog import Stored, encoded
from aliquot.apiserver.objects import Key, Object
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.resources import BY_COLLECTION, NAMESPACES, PODS, POLICIES, POLICY_BINDINGS, WritableResource
from tests.rig.waiting import wait_for

_FIRST_REFUSAL = 400
_TESTED = ("pods", "nodes", "configmaps", "events")


class Refusal(AssertionError):
    pass


class Asking:
    """Plain requests, one at a time."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)

    def close(self) -> None:
        self._connection.close()

    def __call__(self, method: str, path: str, body: Any = None, *, content: str = "application/json") -> Any:
        sent = None if body is None else msgspec.json.encode(body)
        response = self._sent(method, path, sent, {"Content-Type": content, "Accept": "application/json"})
        answer = msgspec.json.decode(response.read())
        if response.status >= _FIRST_REFUSAL:
            raise Refusal(f"{method} {path}: {answer}")
        return answer

    def _sent(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Once more on a new connection if the old one was closed, as servers do when nobody has asked for minutes."""
        try:
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()
        except (http.client.RemoteDisconnected, http.client.CannotSendRequest, ConnectionError):
            self._connection.close()
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()


class RealStore:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    @property
    def revision(self) -> int:
        """The newest version of what tests are about: the server's own Lease moves all the time."""
        return max((held.revision for kind in _TESTED for held in self.snapshot(kind)), default=0)

    def get(self, collection: str, key: Key) -> Stored | None:
        with suppress(Refusal):
            return _stored(self._ask("GET", _path(BY_COLLECTION[collection], *key)))
        return None

    def snapshot(self, collection: str) -> list[Stored]:
        listed = self._ask("GET", _path(BY_COLLECTION[collection]))
        return [_stored(item) for item in listed["items"]]


class RealRegistry:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    def get(self, resource: WritableResource, namespace: str, name: str) -> Stored:
        return _stored(self._ask("GET", _path(resource, namespace, name)))

    def create(self, resource: WritableResource, namespace: str, body: Object) -> Stored:
        return _stored(self._ask("POST", _path(resource, namespace), _typed(resource, body)))

    def delete(self, resource: WritableResource, namespace: str, name: str, request: DeleteRequest) -> Stored:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if request.grace_seconds is not None:
            options["gracePeriodSeconds"] = request.grace_seconds
        return _stored(self._ask("DELETE", _path(resource, namespace, name), options))

    def rewrite(
        self, resource: WritableResource, namespace: str, name: str, change: Callable[[Object], Object]
    ) -> Stored:
        """The object through its own path, its node through a Binding and its status through the third."""
        before = self.get(resource, namespace, name).obj
        wanted = _typed(resource, change(before))
        path = _path(resource, namespace, name)
        if resource is PODS and wanted["spec"].get("nodeName") != before["spec"].get("nodeName"):
            meta = {"name": name, "annotations": wanted["metadata"].get("annotations", {})}
            self._ask("POST", f"{path}/binding", {"metadata": meta, "target": {"name": wanted["spec"]["nodeName"]}})
            return self.get(resource, namespace, name)
        after = self._ask("PUT", path, wanted)
        if wanted.get("status") != after.get("status"):
            status = {**after, "status": wanted.get("status") or {}}
            after = self._ask("PUT", f"{path}/status", status)
        return _stored(after)


class Broom:
    """Takes away what a test has made: everything that was not there when the server was new."""

    def __init__(self, ask: Asking) -> None:
        self._ask = ask
        self._first = {_key(resource, obj) for resource, obj in self._everything()}

    def sweep(self) -> None:
        wait_for("everything to go", self._is_clean, seconds=30, every=0.01)

    def _is_clean(self) -> bool:
        """More than one pass may be needed: a policy counts for a moment after it was deleted."""
        left = [(resource, obj) for resource, obj in self._everything() if _key(resource, obj) not in self._first]
        for resource, obj in left:
            with suppress(Refusal):
                self._remove(resource, obj)
        return not left

    def _everything(self) -> Iterator[tuple[WritableResource, Any]]:
        for resource in _SWEPT:
            for obj in self._ask("GET", _path(resource))["items"] or ():
                yield resource, obj

    def _remove(self, resource: WritableResource, obj: Any) -> None:
        meta = obj["metadata"]
        path = _path(resource, meta.get("namespace", ""), meta["name"])
        if meta.get("finalizers"):
            self._ask("PATCH", path, {"metadata": {"finalizers": None}}, content="application/merge-patch+json")
        self._ask("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
        if resource is NAMESPACES:  # what kube-controller-manager does when it has emptied one
            self._ask("PUT", f"{path}/finalize", {**self._ask("GET", path), "spec": {"finalizers": []}})


# what guards the others goes first, and what holds them last
_GUARDS = (POLICY_BINDINGS, POLICIES)
_SWEPT = (
    *_GUARDS,
    *(r for r in BY_COLLECTION.values() if "list" in r.verbs and r not in (*_GUARDS, NAMESPACES)),
    NAMESPACES,
)


def _key(resource: WritableResource, obj: Any) -> tuple[str, str, str]:
    return resource.collection, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _path(resource: WritableResource, namespace: str = "", name: str = "") -> str:
    where = f"namespaces/{namespace}/" if resource.namespaced and namespace else ""
    return "/".join(filter(None, (resource.prefix, f"{where}{resource.plural}", name)))


def _typed(resource: WritableResource, body: Object) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _stored(obj: Any) -> Stored:
    return encoded(obj, int(obj["metadata"].get("resourceVersion", "0")))
