"""The late patch: the write that gives a placement to a pod which another scheduler has bound."""

import structlog

from aliquot import faults, metrics
from aliquot.control.placing.pod_metadata import PodMetadata
from aliquot.control.placing.transaction import PlacementTransactions
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed, Reassigned
from aliquot.dialects import Demand
from aliquot.errors import AliquotError, NoRoom, Refused
from aliquot.kube import PODS, ApiError, Client, KubeError, NotSent
from aliquot.ledger import State
from aliquot.model import Placement, Pod, Request, as_shown
from aliquot.model.records import PLACEMENT

_log = structlog.get_logger()


class LatePatches:
    """Like a commit, with a patch in place of the Binding."""

    def __init__(self, client: Client, cluster: ClusterState, transactions: PlacementTransactions) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._patch = _Patch(client)

    async def place(self, pod: Pod, demand: Demand) -> Placement:
        """Place a bound pod on its node. Raises as `PlacementTransactions.place`, and NoRoom."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        try:
            async with self._transactions.lock(uid):
                placed = await self._transactions.place(
                    pod, node, demand, lambda: self._claim(pod, demand), self._patch
                )
        except BaseException as error:
            if (outcome := _outcome(error)) is not None:
                metrics.LATE.labels(outcome).inc()
            raise
        metrics.LATE.labels("placed").inc()
        cards = sorted({part.uuid for part in placed.placement.slices()})
        _log.info("placed late", pod=pod.key, node=node, cards=cards)
        return placed.placement

    def _claim(self, pod: Pod, demand: Demand) -> Placement:
        """Claim the reserved part, the part of an earlier patch, or a new part. Raises NoRoom."""
        uid, node, request = pod.metadata.uid, pod.spec.node_name, demand.request
        reserved = self._cluster.reserved_for(demand, node)
        held = self._cluster.ledger.entry(uid, node)
        if held is None or reserved is not None:
            return self._claimed(request, reserved or self._fit(demand, node))
        is_claimed = held.state is State.CLAIMED or self._transactions.is_unknown(uid, node)
        if held.placement.containers and is_claimed:
            sent = as_shown(held.placement, request, self._cluster.cards(node))
            return self._claimed(request, sent)  # again, because the outcome of the patch is unknown
        if uid in self._cluster.adoption.foretold and self._cluster.suits(held, demand):
            return self._claimed(request, held.placement)  # its node may be handing it over
        with self._cluster.trial(without=uid):  # these cards are only assumed until somebody names them
            placement = self._fit(demand, node)
        self._cluster.apply(Reassigned(request, placement))
        return placement

    def _claimed(self, request: Request, placement: Placement) -> Placement:
        self._cluster.apply(Claimed(request, placement))
        return placement

    def _fit(self, demand: Demand, node: str) -> Placement:
        """The part that a pod gets on its node. Raises NoRoom after a look at this node alone: many pods may wait for a
        single node."""
        if (reason := self._cluster.refusal(demand, node)) is not None:
            raise NoRoom(reason.value)
        return self._cluster.fit(demand, node)


class _Patch:
    after_claim: faults.Point = "after-late-claim"
    after_write: faults.Point = "after-late-patch"

    def __init__(self, client: Client) -> None:
        self._client = client

    async def send(self, pod: Pod, _node: str, metadata: PodMetadata) -> Pod | None:
        own = pod.metadata
        patch = {"metadata": metadata.fields()}
        return await self._client.patch(
            PODS, own.name, patch, namespace=own.namespace, uid=own.uid, version=metadata.version
        )

    def is_made(self, pod: Pod, _node: str) -> bool:
        return PLACEMENT in pod.metadata.annotations


def _outcome(error: BaseException) -> str | None:
    """Outcome of a write that did not place its pod; None if nothing was sent."""
    match error:
        case ApiError() | NotSent():
            return "refused"
        case Refused():
            return "refused" if isinstance(error.__cause__, ApiError) else None
        case AliquotError():
            return None if not isinstance(error, KubeError) else "unknown"
    return "unknown"
