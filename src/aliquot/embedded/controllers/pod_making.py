"""Creates a controller's pods under its own account, so that policies apply, and reports refusals as events."""

from contextlib import suppress
from hashlib import sha256

from aliquot.apiserver.objects import Object, text_at, timestamp
from aliquot.apiserver.statuses import StatusError
from aliquot.embedded.api.admission import Admission
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import EVENTS, PODS

FAILED_CREATE = "FailedCreate"

_LONGEST_BASE = 236


class PodMaker:
    """`name` is the controller's service account in `kube-system`."""

    def __init__(self, registry: Registry, name: str) -> None:
        self._registry = registry
        self._name = name
        self._own = registry.admitting(Admission.of_controller(registry.store, name))

    def make(self, owner: Object, pod: Object) -> Object:
        """Create a pod. On failure it writes an event about the owner and raises StatusError."""
        try:
            return self._own.create(PODS, owner["metadata"]["namespace"], pod).obj
        except StatusError as error:
            with suppress(StatusError):  # a terminating namespace takes no events
                self._tell(owner, f"Error creating: {error.message}")
            raise

    def _tell(self, owner: Object, message: str) -> None:
        """Keep one event per owner: the pod's name in the message differs each time, the reason does not."""
        namespace, at = owner["metadata"]["namespace"], timestamp(self._registry.clock())
        name = _event_name(owner)
        if self._registry.store.get(EVENTS.collection, (namespace, name)) is None:
            self._registry.create(EVENTS, namespace, self._event(owner, name, message, at))
            return
        self._registry.rewrite(
            EVENTS,
            namespace,
            name,
            lambda event: {**event, "message": message, "count": event["count"] + 1, "lastTimestamp": at},
        )

    def _event(self, owner: Object, name: str, message: str, at: str) -> Object:
        about = {"kind": owner["kind"], "apiVersion": owner["apiVersion"]}
        about |= {field: text_at(owner, "metadata", field) for field in ("namespace", "name", "uid", "resourceVersion")}
        return {
            "metadata": {"name": name},
            "involvedObject": about,
            "type": "Warning",
            "reason": FAILED_CREATE,
            "message": message,
            "source": {"component": self._name},
            "reportingComponent": self._name,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }


def _event_name(owner: Object) -> str:
    mark = sha256(f"{owner['metadata']['uid']} {FAILED_CREATE}".encode()).hexdigest()[:16]
    return f"{owner['metadata']['name'][:_LONGEST_BASE]}.{mark}"
