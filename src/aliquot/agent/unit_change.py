"""A node's unit of memory must not change beneath running pods: the ids that they hold count in the old unit."""

from collections.abc import Sequence
from dataclasses import replace

from aliquot.agent.id_holders import IdHolders
from aliquot.dialects import Dialect
from aliquot.errors import BadConfig, BadRecord
from aliquot.model import Node, NodeGpus
from aliquot.model.records import INVENTORY, read_inventory


def refuse_unit_change(node: Node, cards: NodeGpus, served: Sequence[Dialect], holders: IdHolders) -> None:
    """Raises BadConfig if pods run whose ids are in another unit than that of these cards."""
    for dialect in served:
        unit_mib = _unit_before(node, dialect)
        if unit_mib is None or unit_mib == cards.unit_mib:
            continue
        before = replace(cards, unit_mib=unit_mib)
        for resource in dialect.resources:
            is_counted_in_it = dialect.device_ids(resource.name, cards) != dialect.device_ids(resource.name, before)
            if is_counted_in_it and (count := len(holders.of(resource.name))):
                raise BadConfig(
                    f"--memory-unit: {count} containers on this node hold {resource.name} in units of {unit_mib} MiB; "
                    f"set the unit back from {cards.unit_mib} MiB, or delete their pods (kubectl get pods "
                    f"--all-namespaces --field-selector spec.nodeName={cards.node}) before you change it"
                )


def _unit_before(node: Node, dialect: Dialect) -> int | None:
    """The unit in the inventory on the Node. Without one, as after an original's plugin, the unit that the Node's
    capacity suggests. None if nobody knows it."""
    record = node.metadata.annotations.get(INVENTORY)
    try:
        known = dialect.capacity(node) if record is None else read_inventory(node.metadata.name, record)
    except BadRecord:
        return None
    return known.unit_mib if known is not None else None
