"""Discovery: version, groups and resources. There is no aggregated discovery."""

from collections.abc import Iterable
from functools import cache

from aliquot.apiserver.objects import Object
from aliquot.apiserver.resources import ServedResource, Subresource
from aliquot.embedded.api.resources import RESOURCES

KUBERNETES_MINOR = 37

_V1: Object = {"apiVersion": "v1"}


def version() -> Object:
    return {
        "major": "1",
        "minor": str(KUBERNETES_MINOR),
        "gitVersion": f"v1.{KUBERNETES_MINOR}.0+aliquot",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "python",
        "platform": "embedded",
    }


@cache
def answer(path: str) -> Object | None:
    """The document at a path, or None. It is shared: do not change it."""
    if path == "/version":
        return version()
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {**_V1, "kind": "APIGroupList", "groups": [_group(name) for name in _groups()]}
    if path.removeprefix("/apis/") in _groups():
        return {**_V1, **_group(path.removeprefix("/apis/")), "kind": "APIGroup"}
    return _resource_list(path)


def _versions() -> list[tuple[str, str]]:
    return list(dict.fromkeys((resource.group, resource.version) for resource in RESOURCES))


def _groups() -> list[str]:
    return list(dict.fromkeys(group for group, _ in _versions() if group))


def _group(name: str) -> Object:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version} for group, version in _versions() if group == name
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _served(group: str, version: str) -> Iterable[ServedResource]:
    return (resource for resource in RESOURCES if (resource.group, resource.version) == (group, version))


def _resource_list(path: str) -> Object | None:
    for group, version in _versions():
        group_version = f"{group}/{version}" if group else version
        if path == (f"/apis/{group_version}" if group else f"/api/{version}"):
            entries = [entry for resource in _served(group, version) for entry in _entries(resource)]
            return {**_V1, "kind": "APIResourceList", "groupVersion": group_version, "resources": entries}
    return None


def _entries(resource: ServedResource) -> list[Object]:
    own: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        own["shortNames"] = list(resource.short_names)
    if resource.categories:
        own["categories"] = list(resource.categories)
    return [own, *(_subresource_entry(resource, sub) for sub in resource.subresources)]


def _subresource_entry(resource: ServedResource, sub: Subresource) -> Object:
    group, version, kind = sub.of or (resource.group, resource.version, resource.kind)
    entry: Object = {
        "name": f"{resource.plural}/{sub.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": list(sub.verbs),
    }
    return {**entry, "group": group, "version": version} if sub.of else entry
