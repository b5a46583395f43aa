"""A snapshot of a live cluster. It takes the right to list nodes and pods, and writes nothing."""

from aliquot.kube import NODES, PODS, Access, Client
from aliquot.kube.resources import ApiResource
from aliquot.simulate.objects import Objects, OwnedPod

_OWNED_PODS = ApiResource(PODS.prefix, PODS.plural, OwnedPod, namespaced=True)


async def read_cluster(access: Access, into: Objects) -> None:
    """Raises KubeError."""
    async with Client(access) as client:
        nodes, pods = await client.list(NODES), await client.list(_OWNED_PODS)
    for node in nodes.items:
        into.add_node(node)
    for pod in pods.items:
        into.add_pod(pod)
