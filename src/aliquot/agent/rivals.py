"""Notices another device plugin that hands out this node's cards by what it leaves in kubelet's checkpoint.

A rival for a resource of ours whose socket has a name that we know is found at the start (`plugin.py`). Any other one
registers on a socket of its own. kubelet then asks whoever registered last, and tells nobody. A plugin for a resource
of a dialect that this node does not serve, such as the vendor's own for whole cards, sells our cards a second time.
"""

from collections.abc import Mapping, Sequence, Set
from functools import partial

from aliquot.agent.checkpoint import Grant
from aliquot.agent.kubelet_records import KubeletRecords, Version
from aliquot.agent.off_loop import off_loop
from aliquot.agent.plugin import DevicePlugin
from aliquot.dialects import Dialects
from aliquot.errors import BadRecord
from aliquot.model.records import OBSERVED

_REMEDY = (
    "remove that plugin from the node and delete the pod of this agent, so that it registers again; or label the node "
    f"{OBSERVED}=true if that plugin is to go on"
)
_REMEDY_FOR_ANOTHER = f"turn that plugin off on this node, or label the node {OBSERVED}=true if it is to go on"

_Ids = Mapping[str, Sequence[str]]
"""By resource."""
_Key = tuple[str, str, str]
"""Resource, pod UID and container of a grant."""


class Rivals:
    def __init__(self, kubelet: KubeletRecords, dialects: Dialects) -> None:
        self._kubelet = kubelet
        self._dialects = dialects.values()
        self._before: Set[_Key] | None = None
        """The containers that other plugins had served before this agent registered: it may have taken over."""
        self._strange: Mapping[str, Set[str]] = {}
        """Ids that nobody of ours offers, by resource, when it looked last."""
        self._compared: tuple[Version, _Ids, Set[str]] | None = None
        """What it compared then: the checkpoint, and the ids and names of our plugins."""

    async def look(self, plugins: Sequence[DevicePlugin]) -> list[str]:
        """Note on each plugin what is known of a rival. Returns what is new."""
        ours = {plugin.resource: plugin.ids for plugin in plugins if plugin.is_registered}
        starting = {plugin.resource for plugin in plugins} - ours.keys()
        try:
            strangers = {_key(grant) for grant in await self._kubelet.known_grants() if not grant.is_ours}
            strange = await self._strange_now(ours, starting)
        except BadRecord:
            return []  # those who cannot do without it say so
        if self._before is None:
            self._before = strangers
        # once is not enough: kubelet may not have heard of our own last list yet
        lasting = {name: sorted(ids & self._strange.get(name, frozenset())) for name, ids in strange.items()}
        self._strange = strange
        found = {name: _of_another(name, ids[0], name in ours) for name, ids in lasting.items() if ids}
        for name, _, container in sorted(strangers - self._before):
            if name in ours:
                found[name] = f"another device plugin has served {name} to a new container {container}: {_REMEDY}"
        of_all = "; ".join(text for name, text in sorted(found.items()) if name not in ours)
        news = dict[str, None]()
        for plugin in plugins:
            rival = found.get(plugin.resource, of_all)
            if rival and not plugin.rival:
                news[rival] = None
            plugin.rival = rival
        return list(news)

    async def _strange_now(self, ours: _Ids, starting: Set[str]) -> Mapping[str, Set[str]]:
        """Ids that nobody of ours offers. They are compared only after a change: a node may have 400,000. Raises
        BadRecord."""
        compared = await self._kubelet.version(), ours, starting
        if compared == self._compared:
            return self._strange
        registered = await self._kubelet.registered_ids(self._is_of_cards)
        found = await off_loop(partial(_not_offered, registered, ours, starting))
        self._compared = compared
        return found

    def _is_of_cards(self, resource: str) -> bool:
        return any(dialect.guards(resource) for dialect in self._dialects)


def _not_offered(
    registered: Mapping[str, frozenset[str]], ours: _Ids, starting: Set[str]
) -> Mapping[str, frozenset[str]]:
    """Before one of ours has registered, kubelet has not written down which other plugins are gone."""
    known = {name: ids for name, ids in registered.items() if ours and name not in starting}
    return {name: ids.difference(ours.get(name, ())) for name, ids in known.items()}


def _of_another(resource: str, device_id: str, is_ours: bool) -> str:
    if is_ours:
        return f"another device plugin offers {resource}, too, with ids such as {device_id}: {_REMEDY}"
    return (
        f"another device plugin offers {resource} with ids such as {device_id}, and so hands out cards of this node "
        f"that Aliquot sells, too: {_REMEDY_FOR_ANOTHER}"
    )


def _key(grant: Grant) -> _Key:
    return grant.resource, grant.pod_uid, grant.container
