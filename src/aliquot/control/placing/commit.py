"""Committing a decision: one Binding carries the node and the placement together."""

from collections.abc import Mapping

import structlog

from aliquot import faults, metrics
from aliquot.config.sections.placement import CommitSection
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.placing.claim_limits import require_claim_limit
from aliquot.control.placing.pod_metadata import PodMetadata
from aliquot.control.placing.transaction import Placed, PlacementTransactions
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed
from aliquot.dialects import Demand
from aliquot.errors import BadInput, NotLeading, Refused
from aliquot.kube import ApiError, Client, NotSent
from aliquot.ledger import Entry, State
from aliquot.model import Placement, Pod, as_shown

_log = structlog.get_logger()


class Committer:
    """Binds pods, only while `leadership` says that we may."""

    def __init__(
        self,
        client: Client,
        cluster: ClusterState,
        transactions: PlacementTransactions,
        leadership: Leadership,
        settings: CommitSection,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._transactions = transactions
        self._leadership = leadership
        self._settings = settings

    def reconfigure(self, settings: CommitSection) -> None:
        self._settings = settings

    async def commit(self, pod: Pod, node: str) -> Placed:
        """Bind a pod to a node with the part that the engine chooses there.

        Raises BadDemand or Refused when nothing was done, and KubeError with the API server's words. After NoAnswer the
        pod may be bound, and asking again is safe.
        """
        with metrics.COMMIT_SECONDS.time():
            try:
                async with self._transactions.lock(pod.metadata.uid):
                    placed = await self._commit(pod, node)
            except BaseException as error:
                metrics.COMMITS.labels(_outcome(error)).inc()
                raise
        metrics.COMMITS.labels("already" if placed.already else "bound").inc()
        return placed

    async def _commit(self, pod: Pod, node: str) -> Placed:
        binding = _Binding(self._client, self._settings.budget)
        demand = self._cluster.demand_of(pod)
        if demand is None:
            self._leadership.require()
            await binding.send(pod, node, PodMetadata({}))
            return Placed(Placement(node, "", {}))
        placed = await self._transactions.place(pod, node, demand, lambda: self._claim(demand, node), binding)
        if not placed.already:
            cards = sorted({part.uuid for part in placed.placement.slices()})
            _log.info("bound", pod=pod.key, node=node, cards=cards)
        return placed

    def _claim(self, demand: Demand, node: str) -> Placement:
        """The reserved part, or the one of an earlier Binding, or a new one. Raises Refused."""
        request, ledger = demand.request, self._cluster.ledger
        require_claim_limit(ledger, request.uid, node, request.namespace, self._settings.claims_per_namespace)
        reserved = self._cluster.reserved_for(demand, node)
        held = None if reserved else ledger.entry(request.uid, node)
        if held is not None:
            return self._claimed_before(held, demand)
        placement = reserved or self._cluster.fit(demand, node)
        self._cluster.apply(Claimed(request, placement))
        return placement

    def _claimed_before(self, held: Entry, demand: Demand) -> Placement:
        """The placement of an earlier Binding without an answer. It is sent again, so that the pod holds only one part.
        Raises Refused if another server or an original has sold its cards meanwhile."""
        if held.state is State.BOUND and self._cluster.cards(held.node).observed:
            return held.placement  # its cards are not ours to choose
        if not self._cluster.suits(held, demand):
            raise Refused(
                f"the API server did not answer an earlier Binding of this pod to {held.node}, and its cards are no "
                "longer free or no longer match the request; the outcome of that Binding is known within "
                f"{self._settings.act_limit:g} s"
            )
        return as_shown(held.placement, demand.request, self._cluster.cards(held.node))


class _Binding:
    after_claim: faults.Point = "after-claim"
    after_write: faults.Point = "after-binding-sent"

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds

    async def send(self, pod: Pod, node: str, metadata: PodMetadata) -> Pod | None:
        await self._client.bind(_binding(pod, node, metadata), timeout=self._seconds)
        return None

    def is_made(self, pod: Pod, node: str) -> bool:
        return pod.spec.node_name == node


def _binding(pod: Pod, node: str, metadata: PodMetadata) -> Mapping[str, object]:
    own = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    version = {"resourceVersion": metadata.version} if metadata.version else {}
    placed = metadata.fields() if metadata.annotations else {}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {**own, **version, **placed},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def _outcome(error: BaseException) -> str:
    match error:
        case NotLeading():
            return "not_leading"
        case Refused() | BadInput():
            return "refused"
        case ApiError() | NotSent():
            return "not_made"
    return "unknown"
