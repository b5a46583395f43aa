"""Expires Events an hour after their last write, as in a real cluster. Otherwise a demo would grow forever."""

from datetime import timedelta

from aliquot.apiserver.objects import Object, key_of, moment_of, text_at
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import EVENTS

_LIFE = timedelta(hours=1)


class EventExpiry:
    collection = EVENTS.collection

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def sync(self, event: Object) -> float | None:
        written = moment_of(text_at(event, "lastTimestamp")) or moment_of(
            text_at(event, "metadata", "creationTimestamp")
        )
        left = (written + _LIFE - self._registry.clock()).total_seconds() if written else 0.0
        if left > 0:
            return left
        self._registry.delete(EVENTS, *key_of(event), DeleteRequest())
        return None
