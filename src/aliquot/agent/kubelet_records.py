"""Which pod and which containers hold the ids of a PreStart call, and which pods still hold ids at all.

There are two sources: kubelet's checkpoint, which lists every container with the names we promised, and the
PodResources API. If both list a pod they must agree. The agent refuses anything unclear, and kubelet retries.

kubelet forgets a pod that was deleted by force while its containers still terminate. The container runtime knows those.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path

from aliquot.agent import cdi, checkpoint, runtime
from aliquot.agent.checkpoint import Grant
from aliquot.agent.podresources import HeldIds, PodResources
from aliquot.errors import Refused

CHECKPOINT = "kubelet_internal_checkpoint"


@dataclass(frozen=True)
class PodGrants:
    """A pod and all its grants that share an id with the call: init and main containers can share ids."""

    pod_uid: str
    pod: str | None
    """`namespace/name` if the PodResources API lists it."""
    grants: tuple[Grant, ...]
    carried: frozenset[str] = frozenset()
    """The containers that get their devices through another resource."""


class KubeletRecords:
    """Reads kubelet's records. `runtime_endpoint` is None without a container runtime, as on a hollow node."""

    def __init__(self, device_plugins: Path, pod_resources: PodResources, runtime_endpoint: Path | None = None) -> None:
        self._checkpoint = device_plugins / CHECKPOINT
        self._pod_resources = pod_resources
        self._runtime = runtime_endpoint

    async def find(self, resource: str, ids: frozenset[str], before: Set[str] = frozenset()) -> PodGrants:
        """The pod with these ids of a resource. A container that also has one of the resources `before` gets its
        devices through that one. Raises Refused or BadRecord with the reason."""
        grants = checkpoint.read(self._checkpoint, before | {resource})
        granted = [grant for grant in grants if grant.resource == resource and grant.ids & ids]
        held = [holding for holding in await self._pod_resources.holdings(resource) if holding.ids & ids]
        holder = agree(ids, granted, held)
        earlier = (grant for grant in grants if grant.pod_uid == holder.pod_uid and grant.resource in before)
        return replace(holder, carried=frozenset(grant.container for grant in earlier))

    async def keeps(self, gone: Mapping[str, str]) -> Set[str]:
        """Which of these pods may still have running containers. The API server no longer shows them.

        `gone` has UIDs with `namespace/name`, empty if unknown. If the runtime has no container of a pod, the
        PodResources API decides: kubelet rewrites its checkpoint only when it allocates ids again. Raises Refused or
        BadRecord if kubelet or the runtime does not answer.
        """
        listed = gone.keys() & {grant.pod_uid for grant in checkpoint.read(self._checkpoint)}
        if self._runtime is None:
            return listed
        running = gone.keys() & await runtime.running(self._runtime)
        looked_after = await self._pod_resources.pods() if listed - running else frozenset[str]()
        return running | {uid for uid in listed if gone[uid] in looked_after or not gone[uid]}

    def promises(self) -> Mapping[str, str]:
        """The pod's UID for each CDI name that this agent promised. Raises BadRecord."""
        grants = checkpoint.read(self._checkpoint)
        return {name: grant.pod_uid for grant in grants for name in grant.promised if cdi.is_ours(name)}


def agree(ids: frozenset[str], granted: list[Grant], held: list[HeldIds]) -> PodGrants:
    """The one pod that both sources name. Raises Refused if there is none or they disagree."""
    if not any(grant.ids == ids for grant in granted):
        raise Refused(f"kubelet's checkpoint lists no container with exactly these {len(ids)} device ids")
    uids = {grant.pod_uid for grant in granted}
    pods = {holding.pod for holding in held}
    if len(uids) > 1 or len(pods) > 1:
        named = ", ".join(sorted(uids | pods))
        raise Refused(f"kubelet's records list the same device ids for several pods: {named}")
    containers = {grant.container for grant in granted}
    strangers = {holding.container for holding in held} - containers
    if strangers:
        raise Refused(
            f"PodResources lists containers that kubelet's checkpoint does not: {', '.join(sorted(strangers))}"
        )
    return PodGrants(uids.pop(), pods.pop() if pods else None, tuple(granted))
