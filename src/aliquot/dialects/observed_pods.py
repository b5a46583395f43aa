"""Reads pods on observed nodes: another vendor's plugin gives them whole cards, and our agent records which."""

from collections.abc import Mapping, Sequence

from aliquot.dialects.holding import Holding
from aliquot.dialects.protocol import asks_any
from aliquot.dialects.table import Dialects
from aliquot.errors import BadRecord
from aliquot.model import Gpu, NodeGpus, Part, Placement, Pod, Request, cut, peak
from aliquot.model.observed import choices
from aliquot.model.records import OBSERVED, read_observed


def observed_holding(pod: Pod, cards: NodeGpus, dialects: Dialects) -> Holding | None:
    """What kubelet gives to a pod on an observed node, in whatever dialect the pod speaks: as many whole cards as it
    asks for. The agent's record names them; cards that it does not name are `unnamed`. None for a pod that asks for no
    such cards: it may still have what our own agent gave it before. Raises BadDemand.

    Users can write the record: a name that is no card of the node does not count, and never makes the number smaller.
    A container with more names than it asks for has none.
    """
    giving = (dialect for dialect in dialects.values() if not dialect.names_cards)
    dialect = next((dialect for dialect in giving if asks_any(pod, dialect.guards)), None)
    if dialect is None:
        return None
    request = dialect.held(pod)
    asked = {container.name: container.part.cards for container in request.containers}
    seen = seen_by_agent(pod, cards).items()
    named = {name: gpus for name, gpus in seen if len(gpus) <= asked.get(name, 0)}
    whole = Part(whole=True)
    placement = Placement(
        cards.node,
        dialect.name,
        {name: tuple(cut(whole, gpu, cards.unit_mib) for gpu in gpus) for name, gpus in named.items() if gpus},
    )
    held = {gpu.uuid: whole.on(gpu, cards.unit_mib) for gpus in named.values() for gpu in gpus}
    given = unnamed_cards(request, cards) if cards.may_hand_over(dialect.name) else 0
    credited = sum(gpu.uuid in held for gpu in choices(cards, request.constraints))
    return Holding(placement, held, unnamed=max(0, given - credited), request=request)


def seen_by_agent(pod: Pod, cards: NodeGpus) -> Mapping[str, Sequence[Gpu]]:
    record = pod.metadata.annotations.get(OBSERVED)
    if record is None:
        return {}
    try:
        named = read_observed(pod.metadata.uid, record)
    except BadRecord:
        return {}
    return {name: [cards.by_uuid[uuid] for uuid in uuids if uuid in cards.by_uuid] for name, uuids in named.items()}


def unnamed_cards(request: Request, cards: NodeGpus) -> int:
    if request.constraints.mig and not cards.parents:
        return 0  # the node does not report its instances, so the pod has none of the cards that it does report
    return peak((asked.life, asked.part.cards) for asked in request.containers)
