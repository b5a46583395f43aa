"""Stale annotations on pods for nodes with an original's own agent. That agent fails a pod whose annotations name
another card.

The original writes its annotations inside the filter. Our filter writes nothing. Right after it, the Lease holder
writes them for the reserved part, and only on a pod with stale annotations. On any other pod the agent chooses the card
and writes the annotations itself.
"""

from typing import NoReturn

import structlog

from aliquot.clock import Clock, came
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.leadership.rights import PATCH_PODS
from aliquot.control.state.cluster_state import ClusterState
from aliquot.dialects import Demand
from aliquot.errors import BadDemand, BadRecord
from aliquot.kube import PODS, Client, KubeError
from aliquot.ledger import Entry
from aliquot.model import Placement, Pod
from aliquot.signals import Signal

_log = structlog.get_logger()
_EACH_SECONDS = 1.0


class StaleAnnotations:
    """`reserved` is emitted when a part was reserved for a pod."""

    def __init__(
        self, client: Client, cluster: ClusterState, leadership: Leadership, clock: Clock, reserved: Signal[Placement]
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._leadership = leadership
        self._clock = clock
        self._reserved = reserved

    async def run(self) -> NoReturn:
        with self._reserved.as_event() as reserved:
            while True:
                await came(reserved, _EACH_SECONDS, self._clock)
                reserved.clear()
                await self.look()

    async def look(self) -> None:
        """Overwrite annotations that are older than a reservation. One pass."""
        for uid, pod in list(self._cluster.adoption.older.items()):
            for node in self._cluster.ledger.nodes_of(uid):
                entry = self._cluster.ledger.entry(uid, node)
                if entry is not None and self._may_act() and (demand := self._demand(pod, entry)) is not None:
                    await self._overwrite(pod, demand, entry)

    def _may_act(self) -> bool:
        return self._leadership.may_commit and PATCH_PODS not in self._leadership.lacking

    def _demand(self, pod: Pod, entry: Entry) -> Demand | None:
        """What a pod asks for if its annotations differ from the cluster state; None if there is nothing to
        overwrite."""
        cards = self._cluster.cards(entry.node)
        if not cards.are_made_up or not entry.placement.containers:
            return None
        try:
            demand = self._cluster.demand_of(pod)
            if demand is None or not demand.dialect.agent_chooses:
                return None
            written = demand.dialect.read_back(pod, cards)
        except BadDemand:
            return None
        except BadRecord:
            return demand
        is_right = written is not None and _cards(written) == _cards(entry.placement)
        return None if is_right and not demand.dialect.is_marked(pod) else demand

    async def _overwrite(self, pod: Pod, demand: Demand, entry: Entry) -> None:
        meta, cards = pod.metadata, self._cluster.cards(entry.node)
        keys = demand.dialect.annotations(pod, demand.request, entry.placement, cards, self._clock.wall_ns())
        try:
            # for this resourceVersion only: the agent may have written what it really gave
            await self._client.patch(
                PODS,
                meta.name,
                {"metadata": {"annotations": keys}},
                namespace=meta.namespace,
                uid=meta.uid,
                version=meta.resource_version,
            )
        except KubeError as error:
            _log.warning("cannot overwrite a pod's stale annotations yet", pod=pod.key, error=str(error))
        else:
            _log.info("overwrote a pod's stale annotations", pod=pod.key, node=entry.node)


def _cards(placement: Placement) -> dict[str, set[str]]:
    return {name: {part.uuid for part in parts} for name, parts in placement.containers.items()}
