"""Nodes and their cards: what they have, who holds it, and what is used of it."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from aliquot.errors import BadInput
from aliquot.ledger import Entry
from aliquot.model import Charge, Gpu, NodeGpus
from aliquot.model.selling import share_of
from aliquot.reports.report import NO_USE, Report, Use, total_use
from aliquot.reports.view import ClusterView


class CardReport(Report, frozen=True, kw_only=True):
    index: int
    uuid: str
    model: str
    profile: str = ""
    """Of a MIG instance, such as 1g.10gb."""
    memory_mib: int
    slots: int = 0
    """MPS slots."""
    healthy: bool = True
    cordoned: bool = False
    is_sold: bool = True
    """Whether any part of it may be sold now."""
    allocated_cores: int = 0
    """Percent."""
    allocated_memory_mib: int = 0
    allocated_slots: int = 0
    allocated: float = 0
    """The part of the card that is taken, in the measure of which most is: from 0 to 1."""
    pods: tuple[str, ...] = ()
    """namespace/name of the pods that hold a part of it."""
    use: Use = NO_USE


class NodeReport(Report, frozen=True, kw_only=True):
    name: str
    ready: bool
    cordoned: bool
    """Whether kubectl has cordoned the node."""
    serves: list[str]
    """The dialects in which pods can ask for its cards; empty if it serves any."""
    driver: str
    agent: str
    """Who hands out its cards: `aliquot`, `observed` (another plugin, watched by our agent), or `other`."""
    silent_seconds: float | None = None
    """How long the agent has not renewed its Lease, if that is longer than it should be."""
    trouble: str = ""
    """Why the server cannot read the node's cards."""
    cards: list[CardReport]

    @property
    def models(self) -> list[str]:
        return sorted({card.model for card in self.cards})

    @property
    def pods(self) -> list[str]:
        return sorted({pod for card in self.cards for pod in card.pods})


class ModelReport(Report, frozen=True, kw_only=True):
    """All cards of a model."""

    model: str
    nodes: int
    cards: int
    empty: int
    """Cards of which no pod holds a part, and that can be sold."""
    closed: int
    """Cards of which nothing can be sold now: unhealthy or cordoned."""
    allocated: float
    """In cards."""
    memory_mib: int
    allocated_memory_mib: int
    pods: int
    use: Use


class NodesReport(Report, frozen=True, kw_only=True):
    nodes: list[NodeReport]


class ModelsReport(Report, frozen=True, kw_only=True):
    models: list[ModelReport]


def nodes_report(view: ClusterView) -> NodesReport:
    """Every node with cards, by name."""
    reports = (node_report(view, name) for name in sorted(view.nodes))
    return NodesReport(nodes=[report for report in reports if report.cards or report.trouble])


def visible_nodes(view: ClusterView) -> NodesReport:
    """Raises BadInput if the reader may not list nodes."""
    if view.lacks("nodes"):
        from aliquot.reports.reading import READ_NODES  # with all that talks to servers

        instead = "`kubectl gpu pods` and `kubectl gpu top pods` show your own pods"
        raise BadInput(f"you may not list nodes; {instead}, or ask for {READ_NODES.rule()}")
    return nodes_report(view)


def node_report(view: ClusterView, name: str) -> NodeReport:
    node, cards = view.nodes[name], view.cluster.cards(name)
    silence = view.silent_agents.get(name)
    entries, used = view.cluster.ledger.entries(name), view.cluster.ledger.used(name)
    sold = (gpu for gpu in cards.gpus if gpu.uuid not in cards.parents)
    return NodeReport(
        name=name,
        ready=node.ready,
        cordoned=node.spec.unschedulable,
        serves=sorted(cards.dialects),
        driver=cards.driver,
        agent="other" if cards.are_made_up else "observed" if cards.observed else "aliquot",
        silent_seconds=None if silence is None else round(silence, 1),
        trouble=view.cluster.unread.why(name),
        cards=[_card(view, cards, gpu, used.get(gpu.uuid, Charge()), entries) for gpu in sold],
    )


def _card(view: ClusterView, cards: NodeGpus, gpu: Gpu, used: Charge, entries: Sequence[Entry]) -> CardReport:
    return CardReport(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        profile=gpu.profile,
        memory_mib=gpu.mib,
        slots=gpu.slots,
        healthy=gpu.healthy,
        cordoned=gpu.cordoned,
        is_sold=cards.sells(gpu),
        allocated_cores=used.cores,
        allocated_memory_mib=used.mib,
        allocated_slots=used.slots,
        allocated=round(share_of(gpu, used), 4),
        pods=tuple(entry.owner.pod for entry in entries if gpu.uuid in entry.charges),
        use=_card_use(view, cards.node, gpu.uuid),
    )


def _card_use(view: ClusterView, node: str, uuid: str) -> Use:
    load = view.loads.get(node)
    card = load.cards.get(uuid) if load else None
    return Use(cores=card.cores, memory_bytes=card.memory_bytes, watts=card.watts) if card else NO_USE


def models_report(report: NodesReport) -> ModelsReport:
    cards = [(card.model, node.name, card) for node in report.nodes for card in node.cards]
    by_model = groupby(sorted(cards, key=lambda item: item[0]), key=lambda item: item[0])
    return ModelsReport(models=[_model(model, list(items)) for model, items in by_model])


def _model(model: str, items: Iterable[tuple[str, str, CardReport]]) -> ModelReport:
    items = list(items)
    cards = [card for _, _, card in items]
    return ModelReport(
        model=model,
        nodes=len({node for _, node, _ in items}),
        cards=len(cards),
        empty=sum(card.is_sold and not card.pods for card in cards),
        closed=sum(not card.is_sold for card in cards),
        allocated=round(sum(card.allocated for card in cards), 4),
        memory_mib=sum(card.memory_mib for card in cards),
        allocated_memory_mib=sum(card.allocated_memory_mib for card in cards),
        pods=len({pod for card in cards for pod in card.pods}),
        use=total_use([card.use for card in cards]),
    )
