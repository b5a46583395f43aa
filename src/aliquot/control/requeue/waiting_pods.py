"""Refused pods that still wait, each with the latest opening that it knows."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from aliquot.control.state.bounded_map import BoundedMap
from aliquot.dialects import Demand
from aliquot.errors import BadDemand
from aliquot.model import Pod, Request
from aliquot.model.bounds import MAX_UNKNOWN, MAX_WAITING, MAX_WAITING_OF_NAMESPACE

PodSignature: TypeAlias = tuple[Request, frozenset[tuple[str, str]]]
"""A request without its pod, and the node selector."""


@dataclass(slots=True)
class WaitingPod:
    """`knows` is the latest opening at the refusal: the pod could not use it or any before it."""

    pod: Pod
    knows: int
    asked_at: float
    looked: tuple[int, int, bool] | None = None
    """The state of the last failed attempt; another attempt fails while it is unchanged."""
    tries: int = 0
    woken: bool = False
    """It is not requeued again before its next refusal."""
    demand: Demand | None = None
    signature: PodSignature | None = None
    read_from: Pod | None = None

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def rank(self) -> tuple[int, str, str]:
        """Sort key, best first: by priority, then by age."""
        return -self.pod.priority, self.pod.metadata.creation_timestamp or "", self.pod.key


class WaitingPods:
    """Waiting pods as the informer cache has them. `demand_of` reads a demand; it is called again after the pod
    changed."""

    def __init__(self, demand_of: Callable[[Pod], Demand | None]) -> None:
        self._demand_of = demand_of
        self._by_uid = BoundedMap[WaitingPod](MAX_WAITING, MAX_WAITING_OF_NAMESPACE)

    def __len__(self) -> int:
        return len(self._by_uid)

    def __contains__(self, refused: object) -> bool:
        return isinstance(refused, WaitingPod) and self._by_uid.get(refused.uid) is refused

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(self._by_uid)

    @property
    def uids(self) -> Collection[str]:
        return self._by_uid.uids

    def get(self, uid: str) -> WaitingPod | None:
        return self._by_uid.get(uid)

    def put(self, refused: WaitingPod) -> None:
        """Add a pod as the newest."""
        if (before := self._by_uid.get(refused.uid)) is not None:
            refused.demand, refused.signature, refused.read_from = before.demand, before.signature, before.read_from
        self._by_uid.put(refused.uid, refused.pod.metadata.namespace, refused)

    def forget(self, uid: str) -> None:
        self._by_uid.forget(uid)

    def see(self, pod: Pod) -> None:
        """Take in a pod."""
        if (refused := self._by_uid.get(pod.metadata.uid)) is not None:
            refused.pod = pod

    def demand(self, refused: WaitingPod) -> Demand | None:
        """The demand of a pod; None if it no longer asks for a GPU, or is unreadable."""
        self._read(refused)
        return refused.demand

    def signature(self, refused: WaitingPod) -> PodSignature | None:
        """Pods with the same signature fit the same nodes; None without a demand."""
        self._read(refused)
        return refused.signature

    def _read(self, refused: WaitingPod) -> None:
        before, refused.read_from = refused.read_from, refused.pod
        if before is not None and asks_alike(before, refused.pod):
            return
        try:
            refused.demand = self._demand_of(refused.pod)
        except BadDemand:
            refused.demand = None
        refused.signature = _signature(refused.pod, refused.demand.request) if refused.demand else None


@dataclass(frozen=True, slots=True)
class _Early:
    knows: int
    asked_at: float


class EarlyRefusals:
    """Refusals of pods that the informer cache does not have yet in the filter's version: kube-scheduler may be ahead
    of our watch. Only the UID is kept, because anybody may have invented the pod."""

    def __init__(self) -> None:
        self._by_uid = BoundedMap[_Early](MAX_UNKNOWN, MAX_UNKNOWN)

    def __len__(self) -> int:
        return len(self._by_uid)

    def put(self, uid: str, knows: int, asked_at: float) -> None:
        self._by_uid.put(uid, "", _Early(knows, asked_at))

    def shown(self, pod: Pod) -> WaitingPod | None:
        """Turn an early refusal into a waiting pod, now that the cache has it; None if there was none."""
        early = self._by_uid.forget(pod.metadata.uid)
        return WaitingPod(pod, early.knows, early.asked_at) if early is not None else None

    def forget(self, uid: str) -> None:
        self._by_uid.forget(uid)

    def forget_before(self, time: float) -> None:
        old = [uid for uid, early in zip(self._by_uid.uids, self._by_uid, strict=True) if early.asked_at < time]
        for uid in old:
            self._by_uid.forget(uid)

    def known_openings(self) -> Iterator[int]:
        return (early.knows for early in self._by_uid)


def asks_alike(left: Pod, right: Pod) -> bool:
    """Whether two pods ask for the same, without parsing their demands. Most updates of a waiting pod change its status
    only."""
    if left is right:
        return True
    before, after = left.metadata, right.metadata
    return left.spec == right.spec and before.annotations == after.annotations and before.labels == after.labels


def _signature(pod: Pod, request: Request) -> PodSignature:
    nobodys = replace(request, uid="", pod=f"{request.namespace}/", priority=0)
    return nobodys, frozenset((pod.spec.node_selector or {}).items())
