"""Which pod and which containers hold the ids of a PreStart call, and which pods still hold ids at all.

There are two sources: kubelet's checkpoint, which lists every container with the names we promised, and the
PodResources API. If both list a pod they must agree. The agent refuses anything unclear, and kubelet retries.

A manifest of an original does not mount the PodResources socket. Then the checkpoint is the only source.

kubelet forgets a pod that was deleted by force, or that the control plane has set to Failed, while its containers still
terminate. The container runtime knows those.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from aliquot.agent import checkpoint, runtime
from aliquot.agent.checkpoint import Grant
from aliquot.agent.off_loop import off_loop
from aliquot.agent.podresources import HeldIds, PodResources
from aliquot.errors import Refused

CHECKPOINT = "kubelet_internal_checkpoint"

Version = tuple[int, int, int] | None
"""What changes when a file is written again; None while there is none."""


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
    """Reads kubelet's records. `pod_resources` and `runtime_endpoint` are None where the agent cannot reach them."""

    def __init__(
        self, device_plugins: Path, pod_resources: PodResources | None, runtime_endpoint: Path | None = None
    ) -> None:
        self._checkpoint = device_plugins / CHECKPOINT
        self._pod_resources = pod_resources
        self._runtime = runtime_endpoint
        self._known: tuple[Version, Sequence[Grant]] = (None, ())

    async def find(self, resource: str, ids: frozenset[str], before: Set[str] = frozenset()) -> PodGrants:
        """The pod with these ids of a resource. A container that also has one of the resources `before` gets its
        devices through that one. Raises Refused or BadRecord with the reason."""
        grants = await self.grants(before | {resource})
        granted = [grant for grant in grants if grant.resource == resource and grant.ids & ids]
        holdings = await self._pod_resources.holdings(resource) if self._pod_resources else ()
        held = [holding for holding in holdings if holding.ids & ids]
        holder = agree(ids, granted, held)
        earlier = (grant for grant in grants if grant.pod_uid == holder.pod_uid and grant.resource in before)
        return replace(holder, carried=frozenset(grant.container for grant in earlier))

    async def keeps(self, gone: Mapping[str, str]) -> Set[str]:
        """Which of these pods may still have running containers. The API server no longer shows them.

        `gone` has UIDs with `namespace/name`, empty if unknown. If the runtime has no container of a pod, the
        PodResources API decides: kubelet rewrites its checkpoint only when it allocates ids again. Raises Refused or
        BadRecord if kubelet or the runtime does not answer.
        """
        listed = gone.keys() & {grant.pod_uid for grant in await self.grants()}
        if self._runtime is None:
            return listed
        running = gone.keys() & await runtime.running(self._runtime)
        looked_after = await self.listed() if listed - running else frozenset[str]()
        if looked_after is None:
            return running | listed
        return running | {uid for uid in listed if gone[uid] in looked_after or not gone[uid]}

    async def running(self, ended: Set[str]) -> Set[str]:
        """Which of these pods, by UID, still have running containers, though the API server shows them as ended. Raises
        Refused if the runtime does not answer. kubelet's own records forget such a pod at once. Without the runtime the
        API server's word counts."""
        return ended & await runtime.running(self._runtime) if self._runtime is not None else frozenset()

    async def granted(self, resource: str) -> Set[tuple[str, str]]:
        """The containers that have ids of a resource, by their pod's UID and their name. Raises BadRecord."""
        return {(grant.pod_uid, grant.container) for grant in await self.grants({resource})}

    async def listed(self) -> Set[str] | None:
        """`namespace/name` of the pods that kubelet manages: it lists a pod from its admission on. None if the agent
        cannot ask. Raises Refused."""
        return await self._pod_resources.pods() if self._pod_resources else None

    async def grants(self, resources: Set[str] | None = None) -> Sequence[Grant]:
        """What kubelet has allocated of these resources, or of all. Raises BadRecord."""
        return await off_loop(partial(checkpoint.read, self._checkpoint, resources))

    async def registered_ids(self, is_wanted: Callable[[str], bool]) -> Mapping[str, frozenset[str]]:
        """The healthy ids of the wanted resources that kubelet was last told, by whichever plugin. Raises BadRecord."""
        return await off_loop(partial(checkpoint.registered_ids, self._checkpoint, is_wanted))

    async def known_grants(self) -> Sequence[Grant]:
        """What kubelet has allocated. The checkpoint is read again only if it has changed. Raises BadRecord."""
        self._known = await off_loop(partial(self._read_if_changed, *self._known))
        return self._known[1]

    async def version(self) -> Version:
        """What changes when kubelet writes its checkpoint again; None while there is none."""
        return await off_loop(partial(_identity, self._checkpoint))

    def _read_if_changed(self, seen: Version, grants: Sequence[Grant]) -> tuple[Version, Sequence[Grant]]:
        now = _identity(self._checkpoint)
        return (now, grants) if now and now == seen else (now, checkpoint.read(self._checkpoint))


def _identity(path: Path) -> Version:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


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
