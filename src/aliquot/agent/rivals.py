"""Notices another device plugin for a resource of ours by what it leaves in kubelet's checkpoint.

A rival whose socket has a name that we know is found at the start (`plugin.py`). Any other one registers on a socket of
its own. kubelet then asks whoever registered last, and tells nobody.
"""

from collections.abc import Mapping, Sequence, Set

from aliquot.agent.checkpoint import Grant
from aliquot.agent.kubelet_records import KubeletRecords
from aliquot.agent.plugin import DevicePlugin
from aliquot.errors import BadRecord
from aliquot.model.records import OBSERVED

_REMEDY = (
    "remove that plugin from the node and delete the pod of this agent, so that it registers again; or label the node "
    f"{OBSERVED}=true if that plugin is to go on"
)

_Key = tuple[str, str, str]
"""Resource, pod UID and container of a grant."""


class Rivals:
    def __init__(self, kubelet: KubeletRecords) -> None:
        self._kubelet = kubelet
        self._before: Set[_Key] | None = None
        """The containers that other plugins had served before this agent registered: it may have taken over."""
        self._strange: Mapping[str, Set[str]] = {}
        """Ids that nobody of ours offers, by resource, when it looked last."""

    async def look(self, plugins: Sequence[DevicePlugin]) -> list[str]:
        """Note on each plugin what is known of a rival. Returns what is new."""
        ours = {plugin.resource: set(plugin.ids) for plugin in plugins if plugin.is_registered}
        try:
            strangers = {_key(grant) for grant in await self._kubelet.known_grants() if not grant.is_ours}
            registered = await self._kubelet.registered_ids(ours.keys())
        except BadRecord:
            return []  # those who cannot do without it say so
        if self._before is None:
            self._before = strangers
        strange = {name: ids - ours[name] for name, ids in registered.items()}
        # once is not enough: kubelet may not have heard of our own last list yet
        lasting = {name: sorted(ids & self._strange.get(name, frozenset())) for name, ids in strange.items()}
        self._strange = strange
        found = {name: f"offers {name}, too, with ids such as {ids[0]}" for name, ids in lasting.items() if ids}
        for name, _, container in sorted(strangers - self._before):
            if name in ours:
                found[name] = f"has served {name} to a new container {container}"
        news = []
        for plugin in plugins:
            text = found.get(plugin.resource, "")
            rival = f"another device plugin {text}: {_REMEDY}" if text else ""
            news += [rival] if rival and not plugin.rival else []
            plugin.rival = rival
        return news


def _key(grant: Grant) -> _Key:
    return grant.resource, grant.pod_uid, grant.container
