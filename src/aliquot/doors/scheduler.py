"""Our own scheduler: places pending pods itself, for `aliquot demo` and for pods that name it."""

import asyncio
from collections.abc import Callable

import structlog

from aliquot.clock import came
from aliquot.control import ControlPlane
from aliquot.dialects import Dialect
from aliquot.engine import Judgement
from aliquot.errors import AliquotError, BadDemand, BadQuantity, NotLeading
from aliquot.model import Node, Pod
from aliquot.model.quantity import whole

_log = structlog.get_logger()

_QUIET_SECONDS = 5.0
"""A pod whose Binding got no answer is tried again after this long even if nothing changes."""


class Scheduler:
    """`serves` says whether a schedulerName is ours."""

    def __init__(self, plane: ControlPlane, serves: Callable[[str], bool]) -> None:
        self._plane = plane
        self._serves = serves
        self._changed = asyncio.Event()
        plane.on_change(self._changed.set)

    async def run(self) -> None:
        await self._plane.nodes.synced.wait()
        await self._plane.pods.synced.wait()
        while True:
            self._changed.clear()
            await self.place_pending()
            await came(self._changed, _QUIET_SECONDS, self._plane.clock)

    async def place_pending(self) -> None:
        """One pass over the pods that wait, oldest first; none while the books may be behind the cluster, or while
        another server leads."""
        if self._plane.not_ready() or not self._plane.leadership.may_commit:
            return
        for pod in sorted(filter(self._is_waiting, self._plane.pods.all()), key=_age):
            try:
                await self._place(pod)
            except NotLeading as error:
                _log.warning("not placed", pod=pod.key, why=str(error))
                return
            except AliquotError as error:
                _log.warning("not placed", pod=pod.key, why=str(error))

    def _is_waiting(self, pod: Pod) -> bool:
        free = not pod.spec.node_name and not pod.metadata.deletion_timestamp and not pod.spec.scheduling_gates
        return free and not pod.ended and self._serves(pod.spec.scheduler_name) and not self._is_bound(pod)

    def _is_bound(self, pod: Pod) -> bool:
        """Our books can be a moment ahead of the mirror."""
        uid = pod.metadata.uid
        return any(self._plane.books.is_settled(uid, node) for node in self._plane.books.ledger.nodes_of(uid))

    async def _place(self, pod: Pod) -> None:
        node, why = self.choose(pod)
        if node is None:
            await self._plane.teller.waits(pod, why)
            return
        await self._plane.committer.commit(pod, node)
        await self._plane.teller.is_bound(pod, node)

    def choose(self, pod: Pod) -> tuple[str | None, str]:
        """The node for a pod, or why there is none: the reasons counted, as kube-scheduler words it."""
        usable = [node for node in self._plane.nodes.all() if _is_usable(node, pod)]
        try:
            demand = self._plane.books.demand_of(pod)
        except BadDemand as error:
            return None, str(error)
        if demand is None:
            return min((node.key for node in usable), default=None), "no node is ready"
        # after a Binding without an answer the same node is asked again: any other would hold a second part
        if tried := self._plane.books.ledger.nodes_of(pod.metadata.uid) & {node.key for node in usable}:
            return min(tried), ""
        judgement = self._plane.books.judge(demand)
        best = judgement.best(node.key for node in usable if self._offers(node, pod, demand.dialect))
        return best, "" if best else _count([_refusal(node, pod, demand.dialect, judgement) for node in usable])

    def _offers(self, node: Node, pod: Pod, dialect: Dialect) -> bool:
        """Whether kubelet has the ids left: it fails a pod for good that asks for more, and starts one without its
        devices, saying nothing, while no plug-in has registered their resource."""
        asked = _asked_ids(pod, dialect)
        return bool(asked) and all(self._ids_left(node, name) >= count for name, count in asked.items())

    def _ids_left(self, node: Node, resource: str) -> int:
        offered = whole(str((node.status.allocatable or {}).get(resource, 0)))
        return offered - sum(_ids(other, resource) for other in self._plane.pods_on(node.key) if not other.ended)


def _is_usable(node: Node, pod: Pod) -> bool:
    wanted = (pod.spec.node_selector or {}).items()
    return node.ready and not node.spec.unschedulable and wanted <= node.metadata.labels.items()


def _ids(pod: Pod, resource: str) -> int:
    """How many ids of a resource kubelet counts for a pod, placed or not."""
    try:
        return pod.asks(resource)
    except BadQuantity:
        return 0


def _asked_ids(pod: Pod, dialect: Dialect) -> dict[str, int]:
    """The resources with a device plug-in of which a pod asks anything."""
    asked = {resource.name: _ids(pod, resource.name) for resource in dialect.resources if resource.socket}
    return {name: count for name, count in asked.items() if count}


def _refusal(node: Node, pod: Pod, dialect: Dialect, judgement: Judgement) -> str:
    if reason := judgement.refusal(node.key):
        return dialect.words(reason)
    if asked := _asked_ids(pod, dialect):
        return f"kubelet has too few of {' or '.join(sorted(asked))} left to offer"
    return f"no device plug-in hands out what the pod asks for; ask for {dialect.resource}"


def _count(refusals: list[str]) -> str:
    """As kube-scheduler words it."""
    counted = ", ".join(f"{refusals.count(text)} {text}" for text in sorted(set(refusals)))
    return f"0/{len(refusals)} nodes are available: {counted or 'no node is ready'}"


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.key
