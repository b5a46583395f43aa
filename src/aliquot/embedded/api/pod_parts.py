"""The parts of a pod that are written through a subresource of their own, which takes nothing of the metadata."""

from aliquot.embedded.api.objects import Object, text_at
from aliquot.embedded.api.statuses import Invalid, forbidden

PARTS = ("ephemeralcontainers", "resize")
INTO_A_CONTAINER = ("attach", "exec", "portforward")
"""What needs a process: here there is none."""


def with_part(current: Object, proposed: Object, part: str) -> Object:
    """The pod with that part as proposed, and nothing else changed. Raises Invalid."""
    spec, asked = current["spec"], proposed.get("spec") or {}
    if part == "ephemeralcontainers":
        containers = asked.get("ephemeralContainers")
        return {**current, "spec": {**spec, **({"ephemeralContainers": containers} if containers else {})}}
    return {**current, "spec": {**spec, "containers": _resized(current, asked.get("containers") or [])}}


def _resized(current: Object, asked: list[Object]) -> list[Object]:
    containers: list[Object] = current["spec"]["containers"]
    if [one.get("name") for one in asked] != [one["name"] for one in containers]:
        error = forbidden("spec", "containers may not be added, removed, renamed or reordered on resize")
        raise Invalid("", "Pod", text_at(current, "metadata", "name"), [error])
    return [{**one, "resources": wanted.get("resources") or {}} for one, wanted in zip(containers, asked, strict=True)]
