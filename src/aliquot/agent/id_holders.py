"""Who holds which device ids: kubelet's checkpoint, joined with the cards that were handed over."""

from collections.abc import Sequence, Set

import structlog

from aliquot.agent.checkpoint import Grant
from aliquot.agent.handover_record import HandOverRecord
from aliquot.agent.handover_store import HandOverStore
from aliquot.agent.id_rule import IdHolder
from aliquot.agent.kubelet_records import KubeletRecords
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_pods import NodePods
from aliquot.errors import BadRecord
from aliquot.signals import Signal

_log = structlog.get_logger()


class IdHolders:
    def __init__(self, kubelet: KubeletRecords, store: HandOverStore, pods: NodePods, cards: NodeCards) -> None:
        self._kubelet = kubelet
        self._store = store
        self._pods = pods
        self._cards = cards
        self._grants: Sequence[Grant] = ()
        self._trouble = ""
        self.changed: Signal[None] = Signal()
        """Emitted when ids may have changed hands."""

    async def refresh(self) -> None:
        """Ask kubelet who holds ids now. While its checkpoint cannot be read, what it said last counts."""
        try:
            self._grants, trouble = await self._kubelet.known_grants(), ""
        except BadRecord as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            _log.warning("cannot tell which ids containers hold now", why=trouble)
        self._trouble = trouble

    def of(self, resource: str) -> list[IdHolder]:
        """The containers of live pods with ids of a resource."""
        grants = [grant for grant in self._grants if grant.resource == resource]
        if not grants:
            return []
        live = {pod.metadata.uid for pod in self._pods.all() if not pod.ended}
        gpus = self._cards.current.gpus
        good = {gpu.uuid for gpu in gpus if gpu.healthy}
        # reading what another plugin gave out takes longer, and matters only if a card has failed
        others = {} if len(good) == len(gpus) else {record.uid: record for record in self._store.others("")}
        return [
            IdHolder(grant.ids, _cards(grant, self._store.of(uid) or others.get(uid)) <= good)
            for grant in grants
            if (uid := grant.pod_uid) in live or uid in self._store
        ]


def _cards(grant: Grant, record: HandOverRecord | None) -> Set[str]:
    """The cards of a container, empty if nobody knows them."""
    if record is None or record.holding.doubt:
        return frozenset()
    return {part.uuid for part in record.holding.placement.containers.get(grant.container, ())}
