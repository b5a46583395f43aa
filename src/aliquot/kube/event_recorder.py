"""Writes Events, which `kubectl describe` shows. Repeated events raise a count, and each object has a rate limit."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from aliquot.clock import Clock, rfc3339
from aliquot.kube.client import Client
from aliquot.kube.errors import ApiError
from aliquot.kube.resources import EVENTS
from aliquot.model import Node, Pod
from aliquot.model.bounds import MAX_EVENTS

_COUNTED_SECONDS = 3600.0
"""If the same event happens again within so many seconds, its count rises. Later it is a new Event."""
_BURST = 25.0
_REFILL_SECONDS = 300.0
"""Each object may have a burst of this many events, and one more every so many seconds, as in Kubernetes itself."""

_Key = tuple[str, str, str, str]


@dataclass
class _Written:
    name: str
    count: int
    at: float


@dataclass
class _TokenBucket:
    left: float
    at: float


class EventRecorder:
    """Writes events about pods and nodes in the name of one component."""

    def __init__(self, client: Client, clock: Clock, component: str) -> None:
        self._client = client
        self._clock = clock
        self._component = component
        self._written: OrderedDict[_Key, _Written] = OrderedDict()
        self._buckets: OrderedDict[str, _TokenBucket] = OrderedDict()
        self._moment = 0

    async def write(self, subject: Pod | Node, *, kind: str, reason: str, message: str) -> bool:
        """Write an event. `kind` is Normal or Warning. Returns False if the subject's rate limit drops it. Raises
        KubeError."""
        if not self._allow(subject.metadata.uid):
            return False
        key = (subject.metadata.uid, kind, reason, message)
        known = self._written.get(key)
        is_old = known is None or self._clock.monotonic() - known.at > _COUNTED_SECONDS
        if known is None or is_old or not await self._count(subject, known):
            body = about(
                subject,
                kind=kind,
                reason=reason,
                message=message,
                component=self._component,
                wall_ns=self._next_moment(),
            )
            await self._client.create(EVENTS, body, _namespace(subject))
            known = _Written(body["metadata"]["name"], 1, 0.0)
        known.at = self._clock.monotonic()
        _keep(self._written, key, known)
        return True

    async def _count(self, subject: Pod | Node, known: _Written) -> bool:
        """Raise the event's count. Returns False if that fails."""
        body = {"count": known.count + 1, "lastTimestamp": rfc3339(self._clock.wall_ns())}
        try:
            await self._client.patch(EVENTS, known.name, body, namespace=_namespace(subject))
        except ApiError:
            return False  # it has expired, or we may only create
        known.count += 1
        return True

    def _next_moment(self) -> int:
        """Now, but later than the last event: names have the time in them."""
        self._moment = max(self._clock.wall_ns(), self._moment + 1)
        return self._moment

    def _allow(self, uid: str) -> bool:
        now = self._clock.monotonic()
        bucket = self._buckets.get(uid) or _TokenBucket(_BURST, now)
        left = min(_BURST, bucket.left + (now - bucket.at) / _REFILL_SECONDS)
        _keep(self._buckets, uid, _TokenBucket(left - 1 if left >= 1 else left, now))
        return left >= 1


def _keep(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """Keep an entry, and drop the least recently used one. At worst, an object then gets one event too many."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > MAX_EVENTS:
        known.popitem(last=False)


def about(subject: Pod | Node, *, kind: str, reason: str, message: str, component: str, wall_ns: int) -> dict[str, Any]:
    """An Event about a pod or a node, to be created in its namespace."""
    moment = rfc3339(wall_ns)
    meta, namespace = subject.metadata, _namespace(subject)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        # the name has the time in it, as kube-scheduler's have: events of one second are listed in order
        "metadata": {"name": f"{meta.name}.{wall_ns:x}", "namespace": namespace},
        "involvedObject": {
            "kind": "Pod" if isinstance(subject, Pod) else "Node",
            "apiVersion": "v1",
            "name": meta.name,
            **({"namespace": namespace} if isinstance(subject, Pod) else {}),
            "uid": meta.uid,
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def _namespace(subject: Pod | Node) -> str:
    """Where events about an object are. Those about nodes are in `default`, where kubelet writes them, too."""
    return subject.metadata.namespace or "default"
