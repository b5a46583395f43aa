"""Missed watch events: an informer cache that has not moved on long after the API server had a newer version."""

from dataclasses import dataclass
from typing import Generic

from aliquot.clock import Clock
from aliquot.kube import Informer
from aliquot.kube.resources import ObjectT
from aliquot.model import Object

_LONG_SECONDS = 20.0
"""No live watch is this far behind: a broken watch is retried after at most 10 s."""


@dataclass(frozen=True)
class _Suspect:
    """An object that the informer cache had in `version` ("" for none) when the API server had another."""

    key: str
    version: str
    since: float


class Staleness(Generic[ObjectT]):
    """Call `begin` before the list, `is_in_sync` for each listed object, `missed` at the end.

    The cache's versions are recorded before the list. A version that the quorum read does not confirm is therefore
    older, never newer, and versions need no order.
    """

    def __init__(self, informer: Informer[ObjectT], clock: Clock) -> None:
        self._informer = informer
        self._clock = clock
        self._before: dict[str, tuple[str, str]] = {}
        self._suspects: dict[str, _Suspect] = {}
        self._found: dict[str, _Suspect] = {}

    def begin(self) -> None:
        self._before = {own.metadata.uid: (own.key, own.metadata.resource_version) for own in self._informer.all()}
        self._found = {}

    def is_in_sync(self, listed: Object) -> bool:
        """Whether the informer cache has exactly this version now."""
        uid, version = listed.metadata.uid, listed.metadata.resource_version
        _, before = self._before.pop(uid, ("", ""))
        if before != version:
            self._suspect(uid, listed.key, before)
        return self._version_now(uid) == version

    def missed(self) -> list[str]:
        """Keys of objects whose change or deletion the informer cache has missed."""
        for uid, (key, version) in self._before.items():
            self._suspect(uid, key, version)
        self._before = {}
        self._suspects, self._found = self._found, {}
        late = self._clock.monotonic() - _LONG_SECONDS
        return sorted(own.key for uid, own in self._suspects.items() if own.since <= late and self._is_still(uid, own))

    def _suspect(self, uid: str, key: str, version: str) -> None:
        earlier = self._suspects.get(uid)
        is_as_then = earlier is not None and earlier.version == version
        self._found[uid] = earlier if earlier and is_as_then else _Suspect(key, version, self._clock.monotonic())

    def _is_still(self, uid: str, suspect: _Suspect) -> bool:
        return self._version_now(uid) == suspect.version

    def _version_now(self, uid: str) -> str:
        own = self._informer.with_uid(uid)
        return own.metadata.resource_version if own is not None else ""
