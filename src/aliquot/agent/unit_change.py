"""A node's unit of memory must not change beneath running pods: the ids that they hold count in the old unit."""

from collections.abc import Sequence
from dataclasses import replace

from aliquot.agent.id_holders import IdHolders
from aliquot.dialects import Dialect
from aliquot.errors import BadConfig, BadRecord
from aliquot.model import Node, NodeGpus
from aliquot.model.records import INVENTORY, read_inventory


def refuse_unit_change(node: Node, cards: NodeGpus, served: Sequence[Dialect], holders: IdHolders) -> None:
    """Raises BadConfig if pods run whose ids are in the unit of the inventory on the Node, and it is another one."""
    record = node.metadata.annotations.get(INVENTORY)
    try:
        unit_mib = read_inventory(node.metadata.name, record).unit_mib if record is not None else cards.unit_mib
    except BadRecord:
        return  # nobody knows the old unit; the inventory is written anew
    if unit_mib == cards.unit_mib:
        return
    before = replace(cards, unit_mib=unit_mib)
    for dialect in served:
        for resource in dialect.resources:
            is_counted_in_it = dialect.device_ids(resource.name, cards) != dialect.device_ids(resource.name, before)
            if is_counted_in_it and (count := len(holders.of(resource.name))):
                raise BadConfig(
                    f"--memory-unit: {count} containers on this node hold {resource.name} in units of {unit_mib} MiB; "
                    f"set the unit back from {cards.unit_mib} MiB, or delete their pods (kubectl get pods "
                    f"--all-namespaces --field-selector spec.nodeName={cards.node}) before you change it"
                )
