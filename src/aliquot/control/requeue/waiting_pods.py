"""The pods that an endpoint has refused and that still wait, with what each of them knows of the room there was."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from aliquot.control.state.remembered import Remembered
from aliquot.dialects import Demand
from aliquot.errors import BadDemand
from aliquot.model import Pod, Request
from aliquot.model.bounds import MAX_UNKNOWN, MAX_WAITING, MAX_WAITING_OF_NAMESPACE

Shape: TypeAlias = tuple[Request, frozenset[tuple[str, str]]]
"""What is asked for, whoever asks, and on which nodes."""


@dataclass(slots=True)
class WaitingPod:
    """`knows` is the latest opening when it was refused: of what came before it could make no use."""

    pod: Pod
    knows: int
    asked_at: float
    looked: tuple[int, int, bool] | None = None
    """On which state a look for room was in vain; while that holds, another one is."""
    tries: int = 0
    woken: bool = False
    """It is not woken again before it was refused again."""
    demand: Demand | None = None
    shape: Shape | None = None
    read_from: Pod | None = None

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def rank(self) -> tuple[int, str, str]:
        """Best first: by priority, then by age."""
        return -self.pod.priority, self.pod.metadata.creation_timestamp or "", self.pod.key


class WaitingPods:
    """As our mirror has them. `demand_of` reads what a pod asks for; it is read again when the pod has changed."""

    def __init__(self, demand_of: Callable[[Pod], Demand | None]) -> None:
        self._demand_of = demand_of
        self._by_uid = Remembered[WaitingPod](MAX_WAITING, MAX_WAITING_OF_NAMESPACE)

    def __len__(self) -> int:
        return len(self._by_uid)

    def __contains__(self, refused: object) -> bool:
        return isinstance(refused, WaitingPod) and self._by_uid.get(refused.uid) is refused

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(self._by_uid)

    @property
    def uids(self) -> Collection[str]:
        return self._by_uid.uids

    def put(self, refused: WaitingPod) -> None:
        """The newest stands last."""
        if (before := self._by_uid.get(refused.uid)) is not None:
            refused.demand, refused.shape, refused.read_from = before.demand, before.shape, before.read_from
        self._by_uid.put(refused.uid, refused.pod.metadata.namespace, refused)

    def forget(self, uid: str) -> None:
        self._by_uid.forget(uid)

    def see(self, pod: Pod) -> None:
        """A pod as it is now."""
        if (refused := self._by_uid.get(pod.metadata.uid)) is not None:
            refused.pod = pod

    def demand(self, refused: WaitingPod) -> Demand | None:
        """None for what asks no GPU by now, or nothing that can be had."""
        self._read(refused)
        return refused.demand

    def shape(self, refused: WaitingPod) -> Shape | None:
        """Pods of one shape fit or do not fit alike; None without a demand."""
        self._read(refused)
        return refused.shape

    def _read(self, refused: WaitingPod) -> None:
        before, refused.read_from = refused.read_from, refused.pod
        if before is not None and asks_alike(before, refused.pod):
            return
        try:
            refused.demand = self._demand_of(refused.pod)
        except BadDemand:
            refused.demand = None
        refused.shape = _shape(refused.pod, refused.demand.request) if refused.demand else None


@dataclass(frozen=True, slots=True)
class _Early:
    knows: int
    asked_at: float


class EarlyRefusals:
    """Refusals of pods that our mirror does not show yet as a body has them: kube-scheduler may be ahead of our watch.
    Of such a pod nothing is kept but its UID, since anybody may have made it up."""

    def __init__(self) -> None:
        self._by_uid = Remembered[_Early](MAX_UNKNOWN, MAX_UNKNOWN)

    def __len__(self) -> int:
        return len(self._by_uid)

    def put(self, uid: str, knows: int, asked_at: float) -> None:
        self._by_uid.put(uid, "", _Early(knows, asked_at))

    def shown(self, pod: Pod) -> WaitingPod | None:
        """What becomes of a refusal now that the mirror shows the pod; None if there was none."""
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


def asks_alike(one: Pod, other: Pod) -> bool:
    """Whether two pods ask for the same, without reading what that is. Most of what changes on a pod that waits is its
    status."""
    if one is other:
        return True
    mine, theirs = one.metadata, other.metadata
    return one.spec == other.spec and mine.annotations == theirs.annotations and mine.labels == theirs.labels


def _shape(pod: Pod, request: Request) -> Shape:
    nobodys = replace(request, uid="", pod=f"{request.namespace}/", priority=0)
    return nobodys, frozenset((pod.spec.node_selector or {}).items())
