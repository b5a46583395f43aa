"""Unhealthy cards as gpushare's users report them: a ConfigMap per node, followed while we run."""

from typing import TypeAlias

from aliquot.clock import Clock
from aliquot.control.books import Books
from aliquot.control.optional import OptionalMirror
from aliquot.control.rights import read_maps
from aliquot.dialects.unhealthy import KEY, NAME_PREFIX, NAMESPACE, unhealthy_cards
from aliquot.kube import CONFIG_MAPS, Client, ConfigMap

_Map: TypeAlias = ConfigMap | None


class UnhealthyMaps:
    """They have no label by which to ask for them alone, so all of their namespace are followed."""

    def __init__(self, client: Client, books: Books, clock: Clock) -> None:
        self._books = books
        right = read_maps(NAMESPACE, "", f"cards that {NAME_PREFIX}<node> names are not left out")
        self._maps: OptionalMirror[ConfigMap] = OptionalMirror(client, CONFIG_MAPS, self._on_map, right, clock)
        self.mirror = self._maps.mirror
        self.run = self._maps.run
        self.tried = self._maps.tried
        self.notes = self._maps.notes

    def _on_map(self, old: _Map, new: _Map) -> None:
        one = new or old
        assert one is not None, "an informer tells of what was or what is"
        name = one.metadata.name
        if name.startswith(NAME_PREFIX):
            text = (new.data or {}).get(KEY, "") if new is not None else ""
            self._books.mark_unhealthy(name.removeprefix(NAME_PREFIX), unhealthy_cards(text))
