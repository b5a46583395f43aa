"""Reads nodes: which dialects they serve, and which cards they have."""

from collections.abc import Iterable
from dataclasses import replace

from aliquot.dialects.cordons import cordoned
from aliquot.dialects.protocol import Dialect
from aliquot.dialects.table import Dialects
from aliquot.errors import BadRecord
from aliquot.model import Node, NodeGpus
from aliquot.model.records import INVENTORY, read_inventory

SERVES = "dialect.aliquot.io/"
"""Node labels `dialect.aliquot.io/<name>=true` decide which dialects a node serves."""


def cards_of(node: Node, dialects: Dialects) -> NodeGpus:
    """A node's cards: as its agent published them, else as an original's plugin left them in its status, with the
    cordons of people."""
    served = dialects_of_node(node, dialects)
    model = _first_label(node, (label for dialect in dialects.values() for label in dialect.model_labels))
    pool = _first_label(node, (label for dialect in dialects.values() for label in dialect.pool_labels))
    found = _cards(node, dialects, served)
    registered = registered_on(node, dialects)
    serving = _of_unnamed_cards(dialects) if found.observed else _also_served(served or found.dialects, dialects)
    found = replace(found, dialects=serving, model=model, pool=pool, registered=registered)
    return cordoned(found, node.metadata.annotations)


def registered_on(node: Node, dialects: Dialects) -> frozenset[str] | None:
    """The dialects with a resource that the node's kubelet knows. kubelet keeps a resource whose plugin is gone. None
    if the node's kubelet has not reported anything yet."""
    if not node.status.capacity:
        return None
    return frozenset(dialect.name for dialect in dialects.guarding(frozenset(node.status.capacity)))


def dialects_of_node(node: Node, dialects: Dialects) -> frozenset[str]:
    """The dialects that a node serves according to our labels, else to the originals' labels. Empty if there are
    none."""
    labels = node.metadata.labels
    if named := _named(node):
        return named
    marked = (dialect for dialect in dialects.values() if dialect.node_labels)
    return frozenset(dialect.name for dialect in marked if dialect.node_labels.items() <= labels.items())


def _of_unnamed_cards(dialects: Dialects) -> frozenset[str]:
    """The dialects of an observed node, whatever its labels say: another vendor's plugin hands out whole cards."""
    return frozenset(dialect.name for dialect in dialects.values() if not dialect.names_cards)


def _named(node: Node) -> frozenset[str]:
    """The dialects that our labels name."""
    labels = node.metadata.labels.items()
    return frozenset(key.removeprefix(SERVES) for key, value in labels if key.startswith(SERVES) and value == "true")


def served_by_label(node: Node, dialects: Dialects) -> frozenset[str]:
    """The dialects that a node serves because our labels say so."""
    return _also_served(_named(node), dialects)


def _also_served(served: frozenset[str], dialects: Dialects) -> frozenset[str]:
    """These dialects, and those that they serve as well."""
    known = [dialects[name] for name in served & dialects.keys()]
    return served | {other.name for other in dialects.values() for own in known if own.serves(other)}


def _first_label(node: Node, keys: Iterable[str]) -> str:
    return next((node.metadata.labels[key] for key in keys if node.metadata.labels.get(key)), "")


def _cards(node: Node, dialects: Dialects, served: frozenset[str]) -> NodeGpus:
    """Raises BadRecord if no dialect can read what the node reports of its cards."""
    inventory = node.metadata.annotations.get(INVENTORY)
    if inventory is not None:
        return read_inventory(node.metadata.name, inventory)
    seen, unread = list[NodeGpus](), list[BadRecord]()
    for dialect in sorted(dialects.values(), key=lambda d: d.name not in served):
        if _counts_for_another(dialect, dialects, served):
            continue
        try:
            if cards := dialect.capacity(node):
                seen.append(cards)
        except BadRecord as error:
            unread.append(error)
    if not seen and unread:
        raise unread[0]
    return next((cards for cards in seen if cards.gpus), seen[0] if seen else NodeGpus(node.metadata.name, (), 1))


def _counts_for_another(dialect: Dialect, dialects: Dialects, served: frozenset[str]) -> bool:
    """Whether a dialect that the node does not serve shares its resource with one that the node does serve."""
    is_served = dialect.name in served
    return not is_served and any(dialects[name].guards(dialect.resource) for name in served & dialects.keys())
