"""The frames of a watch as nvidia-gpu-scheduler sends them, for its own clients."""

from collections.abc import Mapping

from aliquot.apiserver.answers import Presenter, encode
from aliquot.apiserver.eventlog import EventType, Stored
from aliquot.apiserver.media import Form
from aliquot.apiserver.objects import Now
from aliquot.endpoints.query.resources import POD_RESOURCES, QueryResource

_SYNCED = "SYNCED"


def is_original(resource: QueryResource, form: Form, query: Mapping[str, str]) -> bool:
    """Whether a watch is one of the original's own clients: they send `?watch=true` and nothing else. Clients of
    Kubernetes also say where to begin, or how long to watch."""
    return bool(resource.original_key) and form is Form.OBJECT and dict(query) == {"watch": "true"}


class OriginalPresenter(Presenter):
    """Added and changed objects are SYNCED. There is no resourceVersion to continue from but those in the objects."""

    def __init__(self, resource: QueryResource, clock: Now) -> None:
        super().__init__(resource, clock=clock)
        self._key = resource.original_key
        self._is_first_version = resource is POD_RESOURCES

    def new_frame(self, change: EventType, stored: Stored) -> bytes:
        if change is not EventType.DELETED:
            return self._line(_SYNCED, self.one(stored))
        return self._line(
            EventType.DELETED, encode(self._ended(stored)) if self._is_first_version else self.one(stored)
        )

    def _line(self, change: str, encoded: bytes) -> bytes:
        return b'{"Type":"%b","%b":%b}\n' % (change.encode(), self._key.encode(), encoded)

    def _ended(self, stored: Stored) -> object:
        """Of a pod that has ended, v0.1.0 says only which one it was, and when."""
        spec = {name: stored.obj["spec"][name] for name in ("pod_name", "pod_namespace")}
        typed = {"kind": POD_RESOURCES.kind, "apiVersion": POD_RESOURCES.api_version}
        status = {"last_changed_time": stored.obj["status"]["last_changed_time"]}
        return {**typed, "metadata": stored.obj["metadata"], "spec": spec, "status": status}
