"""Which pod, and which of its containers, hold the ids of a PreStart call; and which pods still hold any.

Two witnesses: kubelet's checkpoint, which has every container and our promises, and PodResources, kubelet's public
word. Where both speak they must agree; anything unclear is refused, and kubelet asks again.

kubelet forgets a pod that is deleted by force while its containers still end. The container runtime knows these.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path

from aliquot.agent import cdi, checkpoint, runtime
from aliquot.agent.checkpoint import Grant
from aliquot.agent.podresources import Holding, PodResources
from aliquot.errors import Refused

CHECKPOINT = "kubelet_internal_checkpoint"


@dataclass(frozen=True)
class Holder:
    """A pod and all its grants that share an id with the call: init and main containers can be given the same ones."""

    pod_uid: str
    pod: str | None
    """`namespace/name` if PodResources lists it."""
    grants: tuple[Grant, ...]
    carried: frozenset[str] = frozenset()
    """Its containers that get their devices with another resource."""


class Holders:
    """`runtime_endpoint` is None where there is no container runtime to ask, as on a hollow node."""

    def __init__(self, device_plugins: Path, pod_resources: PodResources, runtime_endpoint: Path | None = None) -> None:
        self._checkpoint = device_plugins / CHECKPOINT
        self._pod_resources = pod_resources
        self._runtime = runtime_endpoint

    async def find(self, resource: str, ids: frozenset[str], before: Set[str] = frozenset()) -> Holder:
        """The pod with these ids of a resource. Containers that kubelet has given one of the resources `before` it get
        their devices with that one. Raises Refused or BadRecord, with the reason."""
        grants = checkpoint.read(self._checkpoint, before | {resource})
        granted = [grant for grant in grants if grant.resource == resource and grant.ids & ids]
        held = [holding for holding in await self._pod_resources.holdings(resource) if holding.ids & ids]
        holder = agree(ids, granted, held)
        earlier = (grant for grant in grants if grant.pod_uid == holder.pod_uid and grant.resource in before)
        return replace(holder, carried=frozenset(grant.container for grant in earlier))

    async def keeps(self, gone: Mapping[str, str]) -> Set[str]:
        """Of pods that the API server no longer shows, by UID with `namespace/name` where that is known, those whose
        containers may run.

        Where the runtime has none of a pod, kubelet's public word is enough that it starts no more: it writes its
        checkpoint anew only when it gives out ids again. Raises Refused or BadRecord if that cannot be told.
        """
        listed = gone.keys() & {grant.pod_uid for grant in checkpoint.read(self._checkpoint)}
        if self._runtime is None:
            return listed
        running = gone.keys() & await runtime.running(self._runtime)
        looked_after = await self._pod_resources.pods() if listed - running else frozenset[str]()
        return running | {uid for uid in listed if gone[uid] in looked_after or not gone[uid]}

    def promises(self) -> Mapping[str, str]:
        """The UID of the pod for each CDI name that we promised. Raises BadRecord."""
        grants = checkpoint.read(self._checkpoint)
        return {name: grant.pod_uid for grant in grants for name in grant.promised if cdi.is_ours(name)}


def agree(ids: frozenset[str], granted: list[Grant], held: list[Holding]) -> Holder:
    """One pod that both witnesses allow, or a refusal."""
    if not any(grant.ids == ids for grant in granted):
        raise Refused(f"kubelet's checkpoint knows no container with just these {len(ids)} ids")
    uids = {grant.pod_uid for grant in granted}
    pods = {holding.pod for holding in held}
    if len(uids) > 1 or len(pods) > 1:
        named = ", ".join(sorted(uids | pods))
        raise Refused(f"kubelet's records give the same ids to several pods: {named}")
    containers = {grant.container for grant in granted}
    strangers = {holding.container for holding in held} - containers
    if strangers:
        raise Refused(
            f"PodResources names containers that kubelet's checkpoint does not: {', '.join(sorted(strangers))}"
        )
    return Holder(uids.pop(), pods.pop() if pods else None, tuple(granted))
