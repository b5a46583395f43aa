"""A scheduler's configuration in a ConfigMap, and what is wrong with the part that names Aliquot."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from aliquot.dialects import Dialects
from aliquot.kube.resources import ConfigMap
from aliquot.model.bounds import LARGEST_CONFIG
from aliquot.reports.redaction import without_secrets

_KIND = "KubeSchedulerConfiguration"


@dataclass(frozen=True)
class SchedulerConfig:
    where: str
    """ConfigMap and key."""
    document: Mapping[str, Any]
    findings: tuple[tuple[str, str, str], ...]
    """Level, text and remedy."""


def scheduler_configs(maps: Iterable[ConfigMap], dialects: Dialects) -> list[SchedulerConfig]:
    """Every configuration of kube-scheduler in these maps, and what is wrong with it."""
    return [
        SchedulerConfig(where, document, tuple(_findings(document, dialects)))
        for where, document in _documents(maps)
        if document.get("kind") == _KIND
    ]


def _documents(maps: Iterable[ConfigMap]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for found in maps:
        for key, text in (found.data or {}).items():
            if _KIND not in text or len(text) > LARGEST_CONFIG:
                continue
            try:
                documents = list(yaml.safe_load_all(text))
            except (yaml.YAMLError, RecursionError):
                continue
            yield from ((f"ConfigMap {found.key}, {key}", each) for each in documents if isinstance(each, Mapping))


def _findings(document: Mapping[str, Any], dialects: Dialects) -> Iterator[tuple[str, str, str]]:
    resources = {resource.name for dialect in dialects.values() for resource in dialect.resources}
    listed = document.get("extenders") or ()
    extenders = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    if not extenders:
        yield "warning", "it has no extender: pods of this scheduler get no cards", "deploy/README.md shows what to add"
    ours = [each for each in extenders if _managed(each) & resources or "aliquot" in str(each.get("urlPrefix", ""))]
    if extenders and not ours:
        names = ", ".join(sorted(resources)[:3])
        yield "warning", f"no extender manages resources such as {names}", "deploy/README.md shows what to add"
    for extender in ours:
        url = without_secrets(extender.get("urlPrefix", "?"))
        if extender.get("ignorable"):
            text = f"extender {url} is ignorable: while Aliquot is away, pods are bound without cards"
            yield "error", text, "set ignorable: false"
        if not extender.get("nodeCacheCapable"):
            text = f"extender {url} gets whole Node objects: every call is many times slower"
            yield "warning", text, "set nodeCacheCapable: true"
        if not extender.get("filterVerb"):
            yield "error", f"extender {url} has no filterVerb: pods go to nodes without room", "set filterVerb"


def _managed(extender: Mapping[str, Any]) -> set[str]:
    listed = extender.get("managedResources")
    return (
        {str(each.get("name")) for each in listed if isinstance(each, Mapping)} if isinstance(listed, list) else set()
    )
