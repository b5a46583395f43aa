"""From paths to resources: `/api/v1/…` is the core group, `/apis/<group>/<version>/…` any other."""

from dataclasses import dataclass

from aliquot.embedded.api.resources import WritableResource, find


@dataclass(frozen=True, slots=True)
class Target:
    resource: WritableResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: str) -> Target | None:
    """The target of a path; None if there is none."""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            return _below("", version, rest)
        case ["apis", group, version, *rest]:
            return _below(group, version, rest)
    return None


def _below(group: str, version: str, rest: list[str]) -> Target | None:
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and find(rest[2], group, version) is not None:
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3 or not all(rest):
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    resource = find(plural, group, version)
    if resource is None or not _fits(resource, namespace, name, subresource):
        return None
    return Target(resource, namespace, name, subresource)


def _fits(resource: WritableResource, namespace: str, name: str, subresource: str) -> bool:
    if subresource and resource.subresource(subresource) is None:
        return False
    if not resource.namespaced:
        return not namespace
    return bool(namespace) or not name


def verb_of(method: str, target: Target, *, watch: bool) -> str:
    """The API verb of a request; "" if there is none."""
    match method:
        case "GET" | "HEAD":
            if target.name:
                return "get"
            return "watch" if watch else "list"
        case "POST":
            return "create" if not target.name or target.subresource else ""
        case "PUT":
            return "update" if target.name else ""
        case "PATCH":
            return "patch" if target.name else ""
        case "DELETE":
            return "delete" if target.name else "deletecollection"
    return ""
