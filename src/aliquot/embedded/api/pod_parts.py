"""The parts of a pod with a subresource of their own. Such a write changes no metadata."""

from aliquot.apiserver.objects import Object, text_at
from aliquot.apiserver.statuses import Invalid, forbidden

PARTS = ("ephemeralcontainers", "resize")
INTO_A_CONTAINER = ("attach", "exec", "portforward")
"""Subresources that need a process, which a hollow node does not have."""


def with_part(current: Object, proposed: Object, part: str) -> Object:
    """The pod with only that part changed. Raises Invalid."""
    spec, asked = current["spec"], proposed.get("spec") or {}
    if part == "ephemeralcontainers":
        containers = asked.get("ephemeralContainers")
        return {**current, "spec": {**spec, **({"ephemeralContainers": containers} if containers else {})}}
    return {**current, "spec": {**spec, "containers": _resized(current, asked.get("containers") or [])}}


def _resized(current: Object, asked: list[Object]) -> list[Object]:
    containers: list[Object] = current["spec"]["containers"]
    if [container.get("name") for container in asked] != [container["name"] for container in containers]:
        error = forbidden("spec", "containers may not be added, removed, renamed or reordered on resize")
        raise Invalid("", "Pod", text_at(current, "metadata", "name"), [error])
    pairs = zip(containers, asked, strict=True)
    return [{**container, "resources": wanted.get("resources") or {}} for container, wanted in pairs]
