"""The policies that limit what Aliquot's own accounts may write."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aliquot.apiserver.objects import Object, dig, key_of, text_at
from aliquot.embedded.api.policies import PolicyRequest, is_like
from aliquot.model.kubernetes import NOT_BEGUN
from aliquot.model.records import NODE_LEASES

_MANAGED = ("annotations", "labels", "managedFields", "resourceVersion", "generation")
_FAILED = ("phase", "reason", "message")


def agent(asked: PolicyRequest) -> str | None:
    if not asked.is_of_account:
        return None
    if not asked.node:
        return f"{asked.user} has no node: its token must be bound to a pod on the node, or to the Node"
    others = f"the agent of node {asked.node} may write to its own Node, Lease and pods only"
    if asked.what == "leases" and asked.operation in ("CREATE", "UPDATE"):
        return _why_not_lease(asked) if key_of(asked.new or {}) == (NODE_LEASES, asked.node) else others
    if asked.what == "events" and asked.operation in ("CREATE", "UPDATE"):
        if all(_is_event_of(asked.node, held) for held in (asked.old, asked.new) if held):
            return None
        return f"the agent of node {asked.node} may write events about its own Node and about pods only"
    keys: Mapping[str, Sequence[str]] = asked.table("keys")
    if asked.operation != "UPDATE" or asked.what not in (*keys, "nodes/status"):
        return f"an agent may not {asked.operation} {asked.what}"
    path = ("metadata", "name") if asked.what.startswith("nodes") else ("spec", "nodeName")
    if text_at(asked.old, *path) != asked.node:
        return others
    if asked.what == "nodes/status":
        return _why_not_status_of_node(asked, asked.table("conditions"))
    own, labels = keys[asked.what], asked.table("labelKeys")[asked.what]
    is_ours = _are_like(own, asked.changed("annotations")) and _are_like(labels, asked.changed("labels"))
    if is_ours and _is_same(asked.new, asked.old, ["metadata"]) and _has_same_metadata(asked):
        return None
    return f"an agent may change only these keys of {asked.what}: {', '.join([*own, *labels])}"


def _why_not_lease(asked: PolicyRequest) -> str | None:
    own, labels = asked.table("keys")["leases"], asked.table("labelKeys")["leases"]
    has_our_keys = _are_like(own, asked.changed("annotations")) and _are_like(labels, asked.changed("labels"))
    is_same = not asked.old or (_is_same(asked.new, asked.old, ["metadata", "spec"]) and _has_same_metadata(asked))
    if has_our_keys and is_same:
        return None
    return f"an agent may change only the spec of its Lease and its annotation {', '.join(own)}"


def _is_event_of(node: str, event: Object) -> bool:
    kind, name = (text_at(event, "involvedObject", field) for field in ("kind", "name"))
    return kind == "Pod" or (kind, name) == ("Node", node)


def _why_not_status_of_node(asked: PolicyRequest, conditions: Sequence[str]) -> str | None:
    now, was = dig(asked.new, "status") or {}, dig(asked.old, "status") or {}
    is_ours = (
        not asked.changed("annotations")
        and not asked.changed("labels")
        and _is_same(asked.new, asked.old, ["metadata", "status"])
        and _has_same_metadata(asked)
        and _is_same(now, was, ["conditions"])
        and _others(now, conditions) == _others(was, conditions)
    )
    return (
        None if is_ours else f"an agent may change only these conditions of its Node's status: {', '.join(conditions)}"
    )


def server(asked: PolicyRequest) -> str | None:
    if not asked.is_of_account:
        return None
    if asked.table("written").get(asked.what) != asked.operation:
        return f"the server may not {asked.operation} {asked.what}"
    keys: Sequence[str] = asked.table("keys")
    if not _are_like(keys, [*asked.changed("annotations"), *asked.changed("labels")]):
        return f"the server may change only these keys of a pod: {', '.join(keys)}"
    if asked.operation == "CREATE":
        return None
    rest = _is_same(asked.new, asked.old, ["metadata", "status"]) and _has_same_metadata(asked)
    in_status = asked.what == "pods/status"
    if not rest or not (in_status or dig(asked.new, "status") == dig(asked.old, "status")):
        return "the server may change only the keys of a pod that record its placement"
    if in_status and not _status_is_ours(asked):
        reason = asked.table("noRoom")
        return f"the server may only report that a pod waits, or fail a pending GPU pod with reason {reason}"
    return None


def _status_is_ours(asked: PolicyRequest) -> bool:
    now, was = dig(asked.new, "status") or {}, dig(asked.old, "status") or {}
    ours: Sequence[str] = asked.table("conditions")
    if not _is_same(now, was, [*_FAILED, "conditions"]) or _others(now, ours) != _others(was, ours):
        return False
    if all(now.get(field) == was.get(field) for field in _FAILED):
        return True
    is_failed = (now.get("phase"), now.get("reason")) == ("Failed", asked.table("noRoom"))
    return is_failed and was.get("phase", "") in NOT_BEGUN and _asks_for_gpu(asked)


def _others(status: Object, types: Sequence[str]) -> list[Any]:
    """The conditions of a status except for these types."""
    return [held for held in status.get("conditions") or () if held.get("type") not in types]


def _asks_for_gpu(asked: PolicyRequest) -> bool:
    containers = [*(dig(asked.new, "spec", "containers") or ()), *(dig(asked.new, "spec", "initContainers") or ())]
    names = [name for container in containers for name in dig(container, "resources", "limits") or ()]
    return any(is_like(pattern, name) for pattern in asked.table("resources") for name in names)


def _has_same_metadata(asked: PolicyRequest) -> bool:
    return _is_same(dig(asked.new, "metadata"), dig(asked.old, "metadata"), _MANAGED)


def _is_same(now: Object | None, was: Object | None, but: Sequence[str]) -> bool:
    fields = {*(now or {}), *(was or {})} - set(but)
    return all((now or {}).get(field) == (was or {}).get(field) for field in fields)


def _are_like(patterns: Sequence[str], keys: Iterable[str]) -> bool:
    return all(any(is_like(pattern, key) for pattern in patterns) for key in keys)
