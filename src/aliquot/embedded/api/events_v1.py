"""Events of `events.k8s.io/v1` are the core group's events under other field names; both are kept as core events."""

from aliquot.embedded.api.objects import Object

_CORE_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_NEW_TO_CORE = {new: core for core, new in _CORE_TO_NEW.items()}


def to_core(event: Object) -> Object:
    return {_NEW_TO_CORE.get(name, name): value for name, value in event.items()}


def from_core(event: Object) -> Object:
    return {_CORE_TO_NEW.get(name, name): value for name, value in event.items()}
