"""Pods that ask for cards: what they asked for, what they hold, and what they use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from aliquot.control.inputs.pod_use import PodUse, in_all
from aliquot.engine import needs_text
from aliquot.errors import BadDemand, BadRecord
from aliquot.model import Charge, Placement, Pod
from aliquot.model.records import PLACEMENT, read_placement
from aliquot.reports.report import NO_USE, Report, Use, total_use
from aliquot.reports.view import ClusterView


class PodCard(Report, frozen=True, kw_only=True):
    """What a pod holds of one card."""

    index: int | None
    uuid: str
    model: str
    cores: int
    """Percent."""
    memory_mib: int
    slots: int = 0
    use: Use = NO_USE


class PodReport(Report, frozen=True, kw_only=True):
    namespace: str
    name: str
    uid: str
    state: str
    """`Waiting` for a node, `Gated`, `Terminating`, or the phase."""
    node: str
    dialect: str
    asks: str
    """What it asks for, in words."""
    trouble: str = ""
    """Why what it asks for makes no sense, or that no node has it."""
    is_unsure: bool = False
    """Whether nothing tells which cards it has, so that it is charged where it may be."""
    priority: int = 0
    created: str = ""
    cards: tuple[PodCard, ...] = ()
    use: Use = NO_USE

    @property
    def memory_mib(self) -> int:
        return sum(card.memory_mib for card in self.cards)

    @property
    def cores(self) -> int:
        return sum(card.cores for card in self.cards)


class PodsReport(Report, frozen=True, kw_only=True):
    pods: list[PodReport]


class HolderReport(Report, frozen=True, kw_only=True):
    """What all pods of a namespace, on a node, or on cards of a model hold together."""

    name: str
    pods: int
    waiting: int
    cards: int
    """Cards of which they hold a part."""
    cores: int
    memory_mib: int
    use: Use


class HoldersReport(Report, frozen=True, kw_only=True):
    by: str
    holders: list[HolderReport]


def pods_report(view: ClusterView, namespace: str = "") -> PodsReport:
    """Pods that ask for cards and have not ended, of a namespace or of all, by namespace and name."""
    shown = (pod for pod in view.pods.values() if not namespace or pod.metadata.namespace == namespace)
    reports = (pod_report(view, pod) for pod in shown if not pod.ended)
    return PodsReport(
        pods=sorted(filter(None, reports), key=lambda report: (report.namespace, report.name)),
    )


def pod_report(view: ClusterView, pod: Pod) -> PodReport | None:
    """None for a pod that asks for no cards."""
    dialect = asks = ""
    trouble = view.no_such_resource(pod)
    try:
        demand = view.cluster.demand_of(pod)
    except BadDemand as error:
        demand, trouble = None, trouble or str(error)
    if demand is None and not trouble:
        return None
    if demand is not None:
        dialect, asks = demand.dialect.name, needs_text(demand.request)
    meta = pod.metadata
    uses = view.uses_of(pod)
    return PodReport(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        state=_state(pod),
        node=pod.spec.node_name,
        dialect=dialect,
        asks=asks,
        trouble=trouble,
        is_unsure=meta.uid in view.cluster.unplaced,
        priority=pod.priority,
        created=meta.creation_timestamp or "",
        cards=_cards(view, pod, uses),
        use=_use(in_all(uses.values())),
    )


def _use(known: PodUse) -> Use:
    cores = None if known.cores is None else round(known.cores, 4)
    return Use(cores=cores, memory_bytes=known.memory_bytes, estimated=known.estimated)


def _state(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp:
        return "Terminating"
    if pod.spec.node_name:
        return pod.status.phase or "Pending"
    return "Gated" if pod.spec.scheduling_gates else "Waiting"


def _cards(view: ClusterView, pod: Pod, uses: Mapping[str, PodUse]) -> tuple[PodCard, ...]:
    uid, node = pod.metadata.uid, pod.spec.node_name
    cards, entry = view.cluster.cards(node), view.cluster.ledger.entry(uid, node)
    charges = entry.charges if entry else {} if node in view.nodes else _recorded(pod)
    held = []
    for uuid, charge in charges.items():
        gpu = cards.by_uuid.get(uuid)
        held.append(
            PodCard(
                index=gpu.index if gpu else None,
                uuid=uuid,
                model=gpu.model if gpu else "",
                cores=charge.cores,
                memory_mib=charge.mib,
                slots=charge.slots,
                use=_use(uses[uuid]) if uuid in uses else NO_USE,
            )
        )
    return tuple(sorted(held, key=lambda card: (card.index is None, card.index or 0, card.uuid)))


def _recorded(pod: Pod) -> Mapping[str, Charge]:
    """What our record on a pod names, for a caller who may not see its node."""
    found: dict[str, Charge] = {}
    placement = recorded_placement(pod)
    for part in placement.slices() if placement else ():
        found[part.uuid] = found.get(part.uuid, Charge()) + Charge(part.cores, part.mib, part.slots)
    return found


def recorded_placement(pod: Pod) -> Placement | None:
    """Our record on a bound pod; None if there is no readable one."""
    text = pod.metadata.annotations.get(PLACEMENT)
    if text is None or not pod.spec.node_name:
        return None
    try:
        return read_placement(text)
    except BadRecord:
        return None


def holders_report(report: PodsReport, by: str) -> HoldersReport:
    """The same pods, summed `by` namespace, node or model."""
    return HoldersReport(by=by, holders=list(_grouped(report.pods, _KEYS[by])))


_KEYS: Mapping[str, Callable[[PodReport], Iterable[tuple[str, Sequence[PodCard]]]]] = {
    "namespace": lambda pod: [(pod.namespace, pod.cards)],
    "node": lambda pod: [(pod.node or "(waiting)", pod.cards)],
    "model": lambda pod: [
        (model, [card for card in pod.cards if card.model == model]) for model in sorted({c.model for c in pod.cards})
    ],
}


def _grouped(
    pods: Iterable[PodReport], key: Callable[[PodReport], Iterable[tuple[str, Sequence[PodCard]]]]
) -> Iterable[HolderReport]:
    parts = sorted(((name, pod, cards) for pod in pods for name, cards in key(pod)), key=lambda item: item[0])
    for name, group in groupby(parts, key=lambda item: item[0]):
        own = list(group)
        cards = [card for _, _, held in own for card in held]
        yield HolderReport(
            name=name,
            pods=len(own),
            waiting=sum(pod.state == "Waiting" for _, pod, _ in own),
            cards=len({card.uuid for card in cards}),
            cores=sum(card.cores for card in cards),
            memory_mib=sum(card.memory_mib for card in cards),
            use=total_use([card.use for card in cards]),
        )
