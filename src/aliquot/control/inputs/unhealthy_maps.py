"""Unhealthy cards in gpushare's format: a ConfigMap per node, watched while we run."""

from typing import TypeAlias

import structlog

from aliquot.clock import Clock
from aliquot.control.inputs.optional import OptionalInformer
from aliquot.control.leadership.rights import read_maps
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Marked
from aliquot.dialects.unhealthy import KEY, NAME_PREFIX, NAMESPACE, unhealthy_cards
from aliquot.errors import BadRecord
from aliquot.kube import CONFIG_MAPS, Client, ConfigMap

_log = structlog.get_logger()
_Map: TypeAlias = ConfigMap | None


class UnhealthyMaps:
    """Watches the whole namespace, because these ConfigMaps have no label to select."""

    def __init__(self, client: Client, cluster: ClusterState, clock: Clock) -> None:
        self._cluster = cluster
        right = read_maps(
            NAMESPACE, "", f"the server also places pods on cards marked unhealthy in {NAME_PREFIX}<node>"
        )
        self._maps: OptionalInformer[ConfigMap] = OptionalInformer(client, CONFIG_MAPS, self._on_map, right, clock)
        self.informer = self._maps.informer
        self.run = self._maps.run
        self.tried = self._maps.tried
        self._unread: dict[str, str] = {}

    def notes(self) -> list[str]:
        unread = (
            f"ConfigMap {NAMESPACE}/{name} cannot be used, so the last known cards stay in force"
            for name in self._unread
        )
        return [*self._maps.notes(), *unread]

    def _on_map(self, old: _Map, new: _Map) -> None:
        shown = new or old
        assert shown is not None, "an informer event has an old or a new object"
        name = shown.metadata.name
        if not name.startswith(NAME_PREFIX):
            return
        text = (new.data or {}).get(KEY, "") if new is not None else ""
        try:
            cards = unhealthy_cards(text)
        except BadRecord as error:
            if self._unread.get(name) != str(error):
                _log.error(
                    "cannot use a list of unhealthy cards, keeping the last one", config_map=name, why=str(error)
                )
            self._unread[name] = str(error)
            return
        self._unread.pop(name, None)
        self._cluster.apply(Marked(name.removeprefix(NAME_PREFIX), sorted(cards)))
