"""`metadata.managedFields`: who manages which fields of an object that somebody has applied.

An object that was never applied has no managers, so its writes cost nothing. A real server tracks them for every
object. At the first apply, existing fields belong to `before-first-apply`, as on a real server for old objects. Nobody
manages what controllers and the server itself write.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from aliquot.embedded.api.apply import paths
from aliquot.embedded.api.apply.merging import merged, without
from aliquot.embedded.api.apply.paths import FieldSet
from aliquot.embedded.api.objects import Object, dig, timestamp
from aliquot.embedded.api.resources import ServedResource
from aliquot.embedded.api.schema.table import Message, message_of
from aliquot.embedded.api.statuses import ApplyConflict

_BEFORE = "before-first-apply"
_KUBECTL = "kubectl"
_KUBECTL_BEFORE = "kubectl-client-side-apply"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_APPLY, _UPDATE = "Apply", "Update"


@dataclass(frozen=True, slots=True)
class Manager:
    """A program that both applies and updates is two managers."""

    operation: str
    name: str
    part: str
    version: str

    def __str__(self) -> str:
        part = f' with subresource "{self.part}"' if self.part else ""
        return f'"{self.name}"{part}' + (f" using {self.version}" if self.operation == _UPDATE else "")


@dataclass(frozen=True, slots=True)
class Managed:
    fields: FieldSet
    time: str


class _Entry(msgspec.Struct, rename={"api_version": "apiVersion", "fields": "fieldsV1"}):
    manager: str
    operation: str
    api_version: str
    fields: dict[str, Any]
    time: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Writer:
    """The sender of a write, and the subresource it goes through."""

    name: str
    part: str
    at: datetime


def applied(resource: ServedResource, live: Object, config: Object, writer: Writer, *, force: bool) -> Object:
    """The live object after the apply, with its managers. Raises ApplyConflict."""
    message = _message(resource)
    managers = _read(live) or _first(resource, message, live, writer)
    me = Manager(_APPLY, writer.name, writer.part, resource.api_version)
    wish = _reaches(resource, paths.wished(config, message), writer.part)
    last = managers[me].fields if me in managers else frozenset()
    others = {manager: held for manager, held in managers.items() if manager != me}
    new = merged(live, config, message)
    unowned = last - wish - frozenset().union(*(held.fields for held in others.values()))
    new = without(new, _unused(unowned, [wish, *(held.fields for held in others.values())]), message)
    touched, gone = paths.changed(paths.held(live, message), paths.held(new, message))
    touched = _reaches(resource, touched, writer.part)
    disputed = touched - _client_side(live, message) if writer.name == _KUBECTL else touched
    conflicts = {manager: lost for manager, held in others.items() if (lost := held.fields & disputed)}
    if conflicts and not force:
        raise ApplyConflict([(str(m), list(map(paths.text, paths.in_order(conflicts[m])))) for m in _sorted(conflicts)])
    left = _without(others, touched | gone, writer.at)
    kept = managers.get(me)
    left[me] = kept if kept is not None and kept.fields == wish else Managed(wish, timestamp(writer.at))
    return _with_managers(new, left)


def updated(resource: ServedResource, live: Object, new: Object, proposed: Object, writer: Writer) -> Object:
    """The new object with its managers. The writer now manages what it changed.

    A request may set the managers itself. kubectl does so to take over fields that it wrote before.
    """
    if _is_reset(proposed):
        return new
    message = _message(resource)
    managers = _read(proposed) or _read(live)
    touched, gone = paths.changed(paths.held(live, message), paths.held(new, message))
    touched = _reaches(resource, touched, writer.part)
    me = Manager(_UPDATE, writer.name, writer.part, resource.api_version)
    mine = managers.pop(me, Managed(frozenset(), ""))
    left = _without(managers, touched | gone, writer.at)
    fields = (mine.fields - gone) | touched
    left[me] = mine if fields == mine.fields else Managed(fields, timestamp(writer.at))
    return _with_managers(new, left)


def _first(resource: ServedResource, message: Message, live: Object, writer: Writer) -> dict[Manager, Managed]:
    """kubectl's client-side apply becomes a server-side manager, so that it can go on with server-side apply."""
    everything = _reaches(resource, frozenset(paths.held(live, message)), "")
    own = everything & _client_side(live, message)
    parts = {_KUBECTL_BEFORE: own, _BEFORE: everything - own}
    at = timestamp(writer.at)
    return {
        Manager(_UPDATE, name, "", resource.api_version): Managed(fields, at)
        for name, fields in parts.items()
        if fields
    }


def _client_side(live: Object, message: Message) -> FieldSet:
    """The fields of kubectl's client-side apply that still have the applied values."""
    try:
        last = msgspec.json.decode(dig(live, "metadata", "annotations", _LAST_APPLIED) or "{}", type=dict[str, Any])
        before = paths.held(last, message)
    except msgspec.MsgspecError:
        return frozenset()
    now = paths.held(live, message)
    changed, _ = paths.changed(before, now)
    return frozenset(before.keys() & now.keys()) - changed


def _message(resource: ServedResource) -> Message:
    return message_of(resource.group, resource.version, resource.kind) or Message(resource.kind)


def _reaches(resource: ServedResource, fields: FieldSet, part: str) -> FieldSet:
    """The fields that a write can own: a status write none of the spec, any other write none of the status."""
    if resource.subresource("status") is None:
        return fields
    other = "f:spec" if part == "status" else "f:status"
    return frozenset(path for path in fields if path[0] != other)


def _unused(fields: FieldSet, owned: Iterable[FieldSet]) -> FieldSet:
    """The paths below which nobody owns a field. Items of a list are always removed."""
    prefixes = {path[:length] for held in owned for path in held for length in range(1, len(path))}
    return frozenset(path for path in fields if path not in prefixes or not path[-1].startswith("f:"))


def _without(managers: Mapping[Manager, Managed], lost: FieldSet, at: datetime) -> dict[Manager, Managed]:
    left = {}
    for manager, held in managers.items():
        fields = held.fields - lost
        left[manager] = held if len(fields) == len(held.fields) else Managed(fields, timestamp(at))
    return left


def _is_reset(obj: Object) -> bool:
    """Whether the request removes all managers: by an empty list, or a list with one empty entry."""
    return dig(obj, "metadata", "managedFields") in ([], [{}])


def _sorted(managers: Iterable[Manager]) -> list[Manager]:
    return sorted(managers, key=lambda manager: (manager.name, manager.operation, manager.part))


def _read(obj: Object) -> dict[Manager, Managed]:
    """The managers of an object; none if they cannot be read."""
    found = {}
    try:
        for entry in msgspec.convert(dig(obj, "metadata", "managedFields") or [], list[_Entry]):
            manager = Manager(entry.operation, entry.manager, entry.subresource, entry.api_version)
            found[manager] = Managed(paths.decoded(entry.fields), entry.time)
    except msgspec.ValidationError:
        return {}
    return found


def _with_managers(obj: Object, managers: Mapping[Manager, Managed]) -> Object:
    held = [(manager, fields) for manager, fields in managers.items() if fields.fields]
    held.sort(key=lambda pair: (pair[0].operation, pair[1].time, pair[0].name))
    metadata = {name: value for name, value in obj.get("metadata", {}).items() if name != "managedFields"}
    listed = [_entry(manager, fields) for manager, fields in held]
    return {**obj, "metadata": {**metadata, **({"managedFields": listed} if listed else {})}}


def _entry(manager: Manager, managed: Managed) -> Object:
    entry: dict[str, Any] = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.version,
        "time": managed.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": paths.encoded(managed.fields),
    }
    return {**entry, **({"subresource": manager.part} if manager.part else {})}
