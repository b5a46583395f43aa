"""Updates: what is kept of the stored object, and what is refused."""

from aliquot.apiserver.objects import Object, dig, text_at, with_metadata, without_nulls
from aliquot.apiserver.statuses import BadRequest, Conflict, Invalid, invalid
from aliquot.embedded.api import pod_parts, shapes
from aliquot.embedded.api.resources import WritableResource
from aliquot.embedded.api.validation import metadata_errors, metadata_update_errors

STALE = "the object has been modified; please apply your changes to the latest version and try again"

_SYSTEM_METADATA = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def successor(resource: WritableResource, current: Object, proposed: Object, part: str) -> Object:
    """The object after the update; equal to `current` if nothing changes. `part` is "", "status" or another
    subresource.

    Raises BadRequest, Conflict, Invalid.
    """
    proposed = without_nulls(proposed)
    shapes.check(proposed, resource.strategy.shape, resource.kind)
    _refuse_renaming(current, proposed)
    _refuse_stale(resource, current, proposed)
    merged = _with_kept_parts(resource, current, proposed, part)
    complete = resource.strategy.defaults(merged)
    _refuse_errors(resource, current, complete, part)
    return _with_generation(resource, current, _with_system_metadata(current, complete))


def refuse_unconditional(resource: WritableResource, proposed: Object) -> None:
    if resource.strategy.needs_revision and not text_at(proposed, "metadata", "resourceVersion"):
        error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise Invalid(resource.group, resource.kind, text_at(proposed, "metadata", "name"), [error])


def _refuse_renaming(current: Object, proposed: Object) -> None:
    for field in ("name", "namespace"):
        asked, present = text_at(proposed, "metadata", field), text_at(current, "metadata", field)
        if asked and present and asked != present:
            raise BadRequest(f"the {field} of the object ({asked}) does not match the one in the URL ({present})")


def _refuse_stale(resource: WritableResource, current: Object, proposed: Object) -> None:
    based_on = text_at(proposed, "metadata", "resourceVersion")
    if based_on and based_on != text_at(current, "metadata", "resourceVersion"):
        raise Conflict(resource.group, resource.plural, text_at(current, "metadata", "name"), STALE)


def _with_kept_parts(resource: WritableResource, current: Object, proposed: Object, part: str) -> Object:
    """Only the status subresource changes the status, and it changes nothing else but metadata."""
    if part in pod_parts.PARTS:
        return pod_parts.with_part(current, proposed, part)
    typed = {**proposed, "apiVersion": current["apiVersion"], "kind": current["kind"]}
    if part == "status":
        kept = {name: value for name, value in current.items() if name not in ("metadata", "status")}
        decided = {name: current["status"][name] for name in ("qosClass",) if name in current.get("status", {})}
        return {**kept, "metadata": proposed.get("metadata", {}), "status": {**decided, **proposed.get("status", {})}}
    if resource.subresource("status") is not None:
        typed.pop("status", None)
        if "status" in current:
            typed["status"] = current["status"]
    return typed


def _refuse_errors(resource: WritableResource, current: Object, complete: Object, part: str) -> None:
    named = with_metadata(complete, name=text_at(current, "metadata", "name"))
    strategy = resource.strategy
    errors = [
        *metadata_errors(named),
        *metadata_update_errors(current, named),
        *strategy.errors(named),
        *([] if part in pod_parts.PARTS else strategy.update_errors(current, named)),
    ]
    if errors:
        raise Invalid(resource.group, resource.kind, text_at(named, "metadata", "name"), errors)


def _with_system_metadata(current: Object, complete: Object) -> Object:
    kept = {name: dig(current, "metadata", name) for name in _SYSTEM_METADATA}
    identity = {name: dig(current, "metadata", name) for name in ("name", "namespace", "uid", "resourceVersion")}
    return with_metadata(complete, **identity, **kept, managedFields=None, selfLink=None)


def _with_generation(resource: WritableResource, current: Object, complete: Object) -> Object:
    if not resource.strategy.counts_generations or current.get("spec") == complete.get("spec"):
        return complete
    return with_metadata(complete, generation=(dig(current, "metadata", "generation") or 0) + 1)
