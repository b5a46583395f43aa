"""What a path asks for, and which right in Kubernetes that needs, as in every API server."""

from collections.abc import Mapping
from dataclasses import dataclass

from aliquot.apiserver.lists import flag
from aliquot.apiserver.selectors import selected_name
from aliquot.endpoints.query.resources import BY_PATH, QueryResource
from aliquot.kube.reviews import Action

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_LONGEST_NAME = 317
"""A namespace, a dot, and the name of a pod."""


@dataclass(frozen=True, slots=True)
class Target:
    """A resource, of a namespace if it has one, and an object of it if there is a name."""

    resource: QueryResource
    namespace: str = ""
    name: str = ""


def action_of(method: str, path: str, query: Mapping[str, str]) -> Action:
    """The action in RBAC's terms."""
    parts = path.strip("/").split("/")
    if len(parts) < 4 or parts[0] != "apis":
        return Action(method.lower(), path=path)
    _, group, version, *rest = parts
    namespace, rest = _namespace(rest)
    resource, name, *deeper = [*rest, ""][: max(2, len(rest))]
    verb = _VERBS.get(method, method.lower())
    if method in ("GET", "HEAD"):
        verb = "get" if name else "watch" if flag(query, "watch") else "list"
        name = name or _selected_name(query)
    elif method == "DELETE" and not name:
        verb = "deletecollection"
    return Action(verb, resource, group, "/".join(deeper[:1]), namespace, name, version=version)


def target_of(path: str) -> Target | None:
    """The resource at a path; None if there is none."""
    parts = path.strip("/").split("/")
    if len(parts) < 4 or parts[0] != "apis" or not all(parts):
        return None
    _, group, version, *rest = parts
    namespace, rest = _namespace(rest)
    resource = BY_PATH.get((group, version, rest[0]))
    if resource is None or len(rest) > 2:
        return None
    name = rest[1] if len(rest) == 2 else ""
    fits = bool(namespace) or not name if resource.namespaced else not namespace
    return Target(resource, namespace, name) if fits else None


def _namespace(rest: list[str]) -> tuple[str, list[str]]:
    """The namespace of a path, and what comes after it."""
    if len(rest) > 2 and rest[0] == "namespaces":
        return rest[1], rest[2:]
    return "", rest


def _selected_name(query: Mapping[str, str]) -> str:
    """The one name that a list or watch selects: a right to that object is enough for it."""
    name = selected_name(query.get("fieldSelector", ""))
    return name if name not in (".", "..") and "/" not in name and len(name) <= _LONGEST_NAME else ""
