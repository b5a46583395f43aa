"""Owners and dependents by UID: an object goes when its last owner is gone."""

from collections.abc import Iterator
from typing import TypeAlias

from aliquot.apiserver.objects import Key, Object, dig, text_at, with_metadata

Place: TypeAlias = tuple[str, Key]
"""A collection and a key in it."""

FOREGROUND = "foregroundDeletion"
"""The finalizer of an owner that waits for its dependents."""


def owner_uids(obj: Object) -> list[str]:
    return [text_at(reference, "uid") for reference in dig(obj, "metadata", "ownerReferences") or []]


def controller_uid(obj: Object) -> str:
    """The UID of the controlling owner, "" for none."""
    references = dig(obj, "metadata", "ownerReferences") or []
    return next((text_at(reference, "uid") for reference in references if reference.get("controller")), "")


def without_owner(obj: Object, uid: str) -> Object:
    kept = [reference for reference in dig(obj, "metadata", "ownerReferences") or [] if reference.get("uid") != uid]
    return with_metadata(obj, ownerReferences=kept or None)


def awaiting_dependents(obj: Object) -> Object:
    """An owner that stays until its dependents are gone."""
    finalizers = dig(obj, "metadata", "finalizers") or []
    return obj if FOREGROUND in finalizers else with_metadata(obj, finalizers=[*finalizers, FOREGROUND])


def released(obj: Object) -> Object:
    finalizers = [name for name in dig(obj, "metadata", "finalizers") or [] if name != FOREGROUND]
    return with_metadata(obj, finalizers=finalizers or None)


def awaits_dependents(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"] and FOREGROUND in (dig(obj, "metadata", "finalizers") or [])


class Ownership:
    """Which object each UID belongs to, and which objects name it as their owner."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._dependents: dict[str, dict[Place, None]] = {}

    def place(self, uid: str) -> Place | None:
        return self._places.get(uid)

    def dependents(self, uid: str) -> Iterator[Place]:
        """Oldest first."""
        yield from list(self._dependents.get(uid, ()))

    def put(self, place: Place, new: Object, old: Object | None) -> None:
        self._places[text_at(new, "metadata", "uid")] = place
        before, after = set(owner_uids(old)) if old else set(), owner_uids(new)
        for uid in after:
            if uid not in before:
                self._dependents.setdefault(uid, {})[place] = None
        for uid in before - set(after):
            self._forget(uid, place)

    def remove(self, place: Place, old: Object) -> None:
        self._places.pop(text_at(old, "metadata", "uid"), None)
        for uid in owner_uids(old):
            self._forget(uid, place)

    def _forget(self, uid: str, place: Place) -> None:
        held = self._dependents.get(uid)
        if held is not None:
            held.pop(place, None)
            if not held:
                del self._dependents[uid]
