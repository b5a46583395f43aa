"""Whether a mirror has missed something: it has not moved on, although the API server had a newer version long ago."""

from dataclasses import dataclass
from typing import Generic

from aliquot.clock import Clock
from aliquot.kube import Informer
from aliquot.kube.resources import ObjectT
from aliquot.model import Object

_LONG_SECONDS = 20.0
"""So far behind is no watch that lives: a broken one is tried again after 10 s at most."""


@dataclass(frozen=True)
class _Suspect:
    """An object of which the mirror had `version` ("" for none) when the API server had another."""

    key: str
    version: str
    since: float


class Staleness(Generic[ObjectT]):
    """`begin` before the API server is asked, `is_in_step` for each object that it names, `missed` at the end.

    The mirror's versions are taken down before the API server is asked: one that the quorum read does not confirm is an
    older one, never a newer. No order of versions has to be known.
    """

    def __init__(self, mirror: Informer[ObjectT], clock: Clock) -> None:
        self._mirror = mirror
        self._clock = clock
        self._before: dict[str, tuple[str, str]] = {}
        self._suspects: dict[str, _Suspect] = {}
        self._found: dict[str, _Suspect] = {}

    def begin(self) -> None:
        self._before = {own.metadata.uid: (own.key, own.metadata.resource_version) for own in self._mirror.all()}
        self._found = {}

    def is_in_step(self, listed: Object) -> bool:
        """Whether the mirror has exactly this version now."""
        uid, version = listed.metadata.uid, listed.metadata.resource_version
        _, before = self._before.pop(uid, ("", ""))
        if before != version:
            self._suspect(uid, listed.key, before)
        return self._version_now(uid) == version

    def missed(self) -> list[str]:
        """The keys of objects of which the mirror has missed a change or the end."""
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
        own = self._mirror.with_uid(uid)
        return own.metadata.resource_version if own is not None else ""
