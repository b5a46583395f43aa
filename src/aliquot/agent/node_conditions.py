"""The conditions of the Node that the agent writes."""

from collections.abc import Mapping

from aliquot.clock import Clock, rfc3339
from aliquot.kube import NODES, Client
from aliquot.model import Node
from aliquot.model.kubernetes import Condition


def condition_of(node: Node, kind: str) -> Condition | None:
    return next((each for each in node.status.conditions or () if each.type == kind), None)


async def write_condition(client: Client, clock: Clock, node: Node, wanted: Mapping[str, str]) -> Node:
    """Returns the Node with the condition. Raises KubeError."""
    known, now = condition_of(node, wanted["type"]), rfc3339(clock.wall_ns())
    turns = known is None or known.status != wanted["status"]
    times = {"lastHeartbeatTime": now, **({"lastTransitionTime": now} if turns else {})}
    body = {"status": {"conditions": [{**wanted, **times}]}}
    return await client.patch(NODES, node.key, body, part="status", merge_lists=True)
