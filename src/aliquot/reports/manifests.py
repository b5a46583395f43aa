"""Pods as they would be created from manifests: a Pod, or whatever has a template of one."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from aliquot.errors import BadInput
from aliquot.model.bounds import LARGEST_POD
from aliquot.model.pending_pod import PendingPod
from aliquot.plain import why

MAX_REPLICAS = 10_000


def pods_of(text: str, where: str, namespace: str, replicas: int | None = None) -> list[PendingPod]:
    """Every pod of the manifests in a text, in order; `replicas` of each. Raises BadInput, which names `where`."""
    if len(text) > LARGEST_POD:
        raise BadInput(f"{where} has more than {LARGEST_POD} bytes")
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, RecursionError) as error:
        raise BadInput(f"{where} is not YAML: {why(error)}") from error
    found = [pod for document in documents for pod in _pods(document, where, namespace, replicas)]
    if not found:
        raise BadInput(f"{where} has no pod")
    return found


def _pods(document: Any, where: str, namespace: str, replicas: int | None) -> Iterator[PendingPod]:
    if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
        raise BadInput(f"{where} is not a manifest: it has no kind")
    if document["kind"] == "List":
        for item in document.get("items") or ():
            yield from _pods(item, where, namespace, replicas)
        return
    template, count = _template(document)
    if template is None:
        return
    metadata = {**_mapping(document.get("metadata")), **_mapping(template.get("metadata"))}
    name = str(metadata.get("name") or metadata.get("generateName") or document["kind"].lower())
    wanted = count if replicas is None else replicas
    for number in range(wanted):
        own = name if wanted == 1 and document["kind"] == "Pod" else f"{name}-{number}"
        yield _pod(where, namespace, own, metadata, template)


def _template(document: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, int]:
    """The pod in a manifest, and how many of it; None for a kind without pods."""
    spec = _mapping(document.get("spec"))
    if document["kind"] == "Pod":
        return document, 1
    if document["kind"] == "CronJob":
        spec = _mapping(_mapping(spec.get("jobTemplate")).get("spec"))
    template = spec.get("template")
    if not isinstance(template, Mapping):
        return None, 0
    count = spec.get("replicas", spec.get("parallelism", 1))
    if not isinstance(count, int) or not 0 <= count <= MAX_REPLICAS:
        raise BadInput(f"{document['kind']}: {count!r} replicas are not between 0 and {MAX_REPLICAS}")
    return template, count


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _pod(where: str, namespace: str, name: str, metadata: Mapping[str, Any], template: Mapping[str, Any]) -> PendingPod:
    own = {
        "name": name,
        "namespace": metadata.get("namespace") or namespace,
        "uid": f"whatif-{name}",
        "annotations": metadata.get("annotations") or {},
        "labels": metadata.get("labels") or {},
    }
    if not isinstance(_mapping(template.get("spec")).get("containers"), list):
        raise BadInput(f"{where}, {name}: the pod has no containers")
    spec = {key: value for key, value in _mapping(template.get("spec")).items() if key != "nodeName"}
    try:
        return msgspec.convert({"metadata": own, "spec": spec}, PendingPod)
    except msgspec.ValidationError as error:
        raise BadInput(f"{where}, {name}: {error}") from error
