"""Deletion of objects: at once, after kubelet's grace period, or when the last finalizer is gone."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from aliquot.apiserver.objects import Object, dig, timestamp, with_metadata
from aliquot.embedded.api.resources import WritableResource


class Propagation(StrEnum):
    """What happens to the dependents of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    propagation: Propagation = Propagation.BACKGROUND


def is_over(obj: Object) -> bool:
    """Whether the object can go: its deletion was requested, its grace period is over, no finalizer is left."""
    metadata = obj["metadata"]
    being_deleted = "deletionTimestamp" in metadata
    return being_deleted and not metadata.get("finalizers") and not metadata.get("deletionGracePeriodSeconds")


def marked(resource: WritableResource, obj: Object, asked: int | None, at: datetime) -> Object:
    """The object marked for deletion; unchanged if an earlier request ends no later."""
    grace = resource.strategy.grace(obj, asked)
    earlier = dig(obj, "metadata", "deletionGracePeriodSeconds")
    if "deletionTimestamp" in obj["metadata"] and earlier is not None and earlier <= grace:
        return obj
    end = timestamp(at + timedelta(seconds=grace))
    generation = dig(obj, "metadata", "generation")
    return with_metadata(
        obj,
        deletionTimestamp=end,
        deletionGracePeriodSeconds=grace,
        generation=None if generation is None else generation + 1,
    )


def terminating_namespace(namespace: Object, at: datetime) -> Object:
    """A namespace marked for deletion: it is emptied before it goes."""
    if "deletionTimestamp" in namespace["metadata"]:
        return namespace
    ended = {**namespace, "status": {**namespace.get("status", {}), "phase": "Terminating"}}
    return with_metadata(ended, deletionTimestamp=timestamp(at))
