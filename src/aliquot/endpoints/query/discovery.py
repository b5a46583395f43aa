"""Discovery: which groups, versions and resources there are, aggregated and one by one."""

from collections.abc import Iterator, Mapping

import aliquot
from aliquot.apiserver.objects import Object
from aliquot.endpoints.query.documents import Variant, document, plain
from aliquot.endpoints.query.resources import RESOURCES, QueryResource

_GROUP, _KIND = "apidiscovery.k8s.io", "APIGroupDiscoveryList"
_AGGREGATED_VERSIONS = ("v2", "v2beta1")

VERSIONS = tuple(dict.fromkeys((each.group, each.version) for each in RESOURCES))
"""Every group has one version."""


def discovery() -> Mapping[str, tuple[Variant, ...]]:
    """The documents by path."""
    found = {
        "/version": plain(document(_version())),
        "/apis": (*map(_aggregated, _AGGREGATED_VERSIONS), *plain(document(_group_list()))),
    }
    for group, version in VERSIONS:
        found[f"/apis/{group}"] = plain(document({"kind": "APIGroup", "apiVersion": "v1", **_group(group, version)}))
        found[f"/apis/{group}/{version}"] = plain(document(_resource_list(group, version)))
    return found


def _version() -> Object:
    major, minor = aliquot.__version__.split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{aliquot.__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


def _of(group: str, version: str) -> Iterator[QueryResource]:
    return (each for each in RESOURCES if (each.group, each.version) == (group, version))


# -- one by one


def _group_list() -> Object:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*each) for each in VERSIONS]}


def _group(group: str, version: str) -> Object:
    served = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


def _resource_list(group: str, version: str) -> Object:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}",
        "resources": [_resource(each) for each in _of(group, version)],
    }


def _resource(resource: QueryResource) -> Object:
    return {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **_other_names(resource),
    }


def _other_names(resource: QueryResource) -> Object:
    names = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {key: value for key, value in names.items() if value}


# -- aggregated


def _aggregated(version: str) -> Variant:
    value: Object = {
        "kind": _KIND,
        "apiVersion": f"{_GROUP}/{version}",
        "metadata": {},
        "items": [_aggregated_group(*each) for each in VERSIONS],
    }
    media = f"application/json;g={_GROUP};v={version};as={_KIND}"
    return Variant(lambda offer: offer.asks(_KIND, _GROUP, version), document(value, media))


def _aggregated_group(group: str, version: str) -> Object:
    resources = [_aggregated_resource(each) for each in _of(group, version)]
    versions = [{"version": version, "resources": resources, "freshness": "Current"}]
    return {"metadata": {"name": group, "creationTimestamp": None}, "versions": versions}


def _aggregated_resource(resource: QueryResource) -> Object:
    return {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        **_other_names(resource),
    }
