"""Reads the nodes and pods of `kubectl inspect gpushare`."""

from aliquot.kube.access import Access, find
from aliquot.kube.client import Client
from aliquot.kube.resources import PODS, ApiResource
from aliquot.kubectl.awaiting import awaited
from aliquot.kubectl.inspect_gpushare.usage import InspectedNode, NodeUse, usage

_NODES = ApiResource("api/v1", "nodes", InspectedNode, namespaced=False)
_TIMEOUT = 30.0


def read(node: str) -> list[NodeUse]:
    """All nodes, or one. Raises KubeError and BadConfig."""
    return awaited(_read(find(None), node))


async def _read(access: Access, node: str) -> list[NodeUse]:
    async with Client(access, timeout=_TIMEOUT) as client:
        if node:
            found = [await client.get(_NODES, node)]
            pods = await client.list(PODS, selector={"fieldSelector": f"spec.nodeName={node}"})
        else:
            found = (await client.list(_NODES)).items
            pods = await client.list(PODS)
    return usage(found, pods.items)
