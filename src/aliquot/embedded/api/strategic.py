"""Strategic merge patches: like JSON merge patches, but lists whose items have an identity merge item by item.

The real server reads the merge keys from its Go types. Here they are one table by field name, which is unambiguous for
everything that we serve.
"""

from typing import Any

from aliquot.apiserver.objects import Object
from aliquot.apiserver.statuses import BadRequest

_MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "hostIPs": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_MERGED_PRIMITIVES = ("finalizers",)
_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"


def strategic_merge(target: Any, patch: Object) -> Any:
    """The document after the patch. Raises BadRequest for an unknown or misplaced directive."""
    directive = patch.get(_DIRECTIVE, "merge")
    if directive == "replace":
        return _without_directives(patch)
    if directive == "delete":
        return {}
    if directive != "merge":
        raise BadRequest(f"unknown strategic merge directive {_DIRECTIVE}: {directive!r}")
    merged = _retained(dict(target) if isinstance(target, dict) else {}, patch.get(_RETAIN))
    for name, value in patch.items():
        if not name.startswith("$"):
            _merge_field(merged, name, value)
    return _in_asked_order(_without_listed_primitives(merged, patch), patch)


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_directives(v) for name, v in value.items() if not name.startswith("$")}
    if isinstance(value, list):
        return [_without_directives(item) for item in value]
    return value


def _retained(target: Object, names: Any) -> Object:
    if names is None:
        return target
    if not isinstance(names, list):
        raise BadRequest(f"{_RETAIN} must be a list")
    return {name: value for name, value in target.items() if name in names}


def _merge_field(merged: Object, name: str, value: Any) -> None:
    if value is None:
        merged.pop(name, None)
    elif isinstance(value, dict):
        merged[name] = strategic_merge(merged.get(name), value)
    elif isinstance(value, list):
        merged[name] = _merge_list(name, merged.get(name), value)
    else:
        merged[name] = value


def _merge_list(name: str, target: Any, patch: list[Any]) -> list[Any]:
    current = target if isinstance(target, list) else []
    if name in _MERGED_PRIMITIVES:
        return [*current, *(item for item in patch if item not in current)]
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        replacement = [item for item in patch if not (isinstance(item, dict) and _DIRECTIVE in item)]
        return [_without_directives(item) for item in replacement]
    key = _merge_key(name, patch)
    return _merge_items(current, patch, key) if key else _without_directives(patch)


def _merge_key(name: str, patch: list[Any]) -> str | None:
    if name not in _MERGE_KEYS or not all(isinstance(item, dict) for item in patch):
        return None
    for key in _MERGE_KEYS[name]:
        if all(key in item for item in patch):
            return key
    raise BadRequest(f"the items of {name!r} in a strategic merge patch need {_MERGE_KEYS[name][0]!r}")


def _merge_items(current: list[Any], patch: list[Object], key: str) -> list[Any]:
    merged = list(current)
    for item in patch:
        position = _find(merged, key, item[key])
        if item.get(_DIRECTIVE) == "delete":
            merged = [present for present in merged if not _is(present, key, item[key])]
        elif position is None:
            merged.append(strategic_merge({}, item))
        else:
            merged[position] = strategic_merge(merged[position], item)
    return _patched_first(merged, current, patch, key)


def _patched_first(merged: list[Any], current: list[Any], patch: list[Object], key: str) -> list[Any]:
    """Items of the patch in its order. Any other item stays before those that it preceded, or goes last."""
    named = [merged[place] for item in patch if (place := _find(merged, key, item[key])) is not None]
    others = [item for item in merged if item not in named]
    ordered: list[Any] = []
    while named and others:
        behind = _find(current, key, named[0][key])
        before = _find(current, key, others[0].get(key)) if isinstance(others[0], dict) else None
        goes_first = behind is not None and before is not None and before < behind
        ordered.append((others if goes_first else named).pop(0))
    return [*ordered, *named, *others]


def _is(item: Any, key: str, identity: Any) -> bool:
    return isinstance(item, dict) and item.get(key) == identity


def _find(items: list[Any], key: str, identity: Any) -> int | None:
    return next((position for position, item in enumerate(items) if _is(item, key, identity)), None)


def _without_listed_primitives(merged: Object, patch: Object) -> Object:
    for directive, gone in patch.items():
        name = directive.removeprefix(_DELETE_PRIMITIVES)
        if name != directive and isinstance(merged.get(name), list) and isinstance(gone, list):
            merged[name] = [item for item in merged[name] if item not in gone]
    return merged


def _in_asked_order(merged: Object, patch: Object) -> Object:
    for directive, order in patch.items():
        name = directive.removeprefix(_ORDER)
        if name != directive and isinstance(merged.get(name), list) and isinstance(order, list):
            merged[name] = _ordered(merged[name], order)
    return merged


def _ordered(items: list[Any], order: list[Any]) -> list[Any]:
    """Listed items first, in that order; then the others in their old order."""

    def place(item: Any) -> int:
        for position, wanted in enumerate(order):
            if item == wanted or (isinstance(wanted, dict) and _contains(item, wanted)):
                return position
        return len(order)

    return sorted(items, key=place)


def _contains(item: Any, wanted: Object) -> bool:
    return isinstance(item, dict) and all(item.get(name) == value for name, value in wanted.items())
