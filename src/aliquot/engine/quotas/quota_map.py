"""The quotas of a cluster, from gpu-admission's ConfigMap: parsed strictly, and never lost to a bad edit."""

import json
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NoReturn

from aliquot.errors import BadConfig, BadQuantity
from aliquot.model.bounds import LARGEST_QUOTAS, MAX_NAMES, MAX_QUOTA, MAX_QUOTA_ENTRIES
from aliquot.model.quantity import whole

_MIB = 2**20


class Measure(Enum):
    """What a quota counts. The value is part of messages."""

    CARDS = "cards"
    MEMORY = "MiB"
    CORES = "% of cores"


FIELDS = {Measure.CARDS: "quota", Measure.MEMORY: "memory", Measure.CORES: "cores"}
"""The keys of a namespace's entry, besides `pool`."""


@dataclass(frozen=True)
class NamespaceQuota:
    """Limits by model name, for each measure. `pools` are the node pools that it may use; empty means any."""

    limits: Mapping[Measure, Mapping[str, int]] = field(default_factory=dict)
    pools: frozenset[str] = frozenset()

    @property
    def models(self) -> list[str]:
        return sorted({name for limits in self.limits.values() for name in limits})


class _Object(tuple[tuple[str, Any], ...]):
    """A JSON object with its keys as written, so that duplicate keys are noticed."""


class _Entries:
    """Counts the entries, so that parsing a huge map stops."""

    def __init__(self) -> None:
        self._left = MAX_QUOTA_ENTRIES

    def add(self, pairs: list[tuple[str, Any]]) -> _Object:
        self._left -= len(pairs)
        if self._left < 0:
            raise BadConfig(f"gpu_quota has more than {MAX_QUOTA_ENTRIES} namespaces, fields and limits")
        return _Object(pairs)


def read_quotas(text: str | bytes) -> Mapping[str, NamespaceQuota]:
    """Parses the value of the ConfigMap's key `gpu_quota`. Raises BadConfig, which names the namespace and the
    field."""
    if len(text) > LARGEST_QUOTAS:
        raise BadConfig(f"gpu_quota has more than {LARGEST_QUOTAS} bytes")
    try:
        document = json.loads(text, object_pairs_hook=_Entries().add, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadConfig(f"gpu_quota is not JSON: {error}") from error
    return {namespace: _entry(namespace, value) for namespace, value in _pairs("gpu_quota", document)}


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _pairs(where: str, value: Any) -> _Object:
    if not isinstance(value, _Object):
        raise BadConfig(f"{where}: {_shown(value)} is not an object {{...}}")
    seen: set[str] = set()
    for key, _ in value:
        if not key:
            raise BadConfig(f"{where} has an empty name")
        if key in seen:
            raise BadConfig(f"{where} names {_shown(key)} twice")
        seen.add(key)
    return value


def _entry(namespace: str, value: Any) -> NamespaceQuota:
    where = f"gpu_quota, namespace {_shown(namespace)}"
    fields = dict(_pairs(where, value))
    known = {*FIELDS.values(), "pool"}
    for name in fields:
        if name not in known:
            raise BadConfig(f"{where}: {_shown(name)} is not one of {', '.join(sorted(known))}")
    limits = {measure: _limits(measure, f"{where}, {name}", fields.get(name)) for measure, name in FIELDS.items()}
    return NamespaceQuota(limits, _pools(f"{where}, pool", fields.get("pool")))


def _limits(measure: Measure, where: str, value: Any) -> Mapping[str, int]:
    if value is None:
        return {}
    read: Callable[[str, Any], int] = _mib if measure is Measure.MEMORY else _count
    limits = _pairs(where, value)
    _require_few(where, limits)
    return {model: read(f"{where}, {_shown(model)}", limit) for model, limit in limits}


def _require_few(where: str, names: Sized) -> None:
    if len(names) > MAX_NAMES:
        raise BadConfig(f"{where} has {len(names)} names; write at most {MAX_NAMES}")


def _count(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadConfig(f"{where}: {_shown(value)} is not a whole number")
    if not 0 <= value <= MAX_QUOTA:
        raise BadConfig(f"{where}: {_shown(value)} is not between 0 and {MAX_QUOTA}")
    return value


def _mib(where: str, value: Any) -> int:
    if not isinstance(value, str):
        return _count(where, value)
    try:
        size = whole(value)
    except BadQuantity as error:
        raise BadConfig(f"{where}: {error}") from error
    if 0 < size < _MIB:
        raise BadConfig(f"{where}: {_shown(value)} is less than 1 MiB; write 640Gi, or MiB as a plain number")
    return _count(where, size // _MIB)


def _pools(where: str, value: Any) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(pool, str) and pool for pool in value):
        raise BadConfig(f"{where}: {_shown(value)} is not a list of names")
    _require_few(where, value)
    if len(set(value)) < len(value):
        raise BadConfig(f"{where} names a pool twice")
    return frozenset(value)


def _shown(value: Any) -> str:
    return repr(dict(value) if isinstance(value, _Object) else value)[:64]


class Quotas:
    """The quotas in force: the last map that could be read. Without a map there are no quotas."""

    def __init__(self) -> None:
        self.entries: Mapping[str, NamespaceQuota] = {}
        self.trouble = ""
        """Why the newest map is not in force; "" if it is."""

    @property
    def limits(self) -> int:
        """The number of limits."""
        return sum(len(by_name) for quota in self.entries.values() for by_name in quota.limits.values())

    def read(self, text: str | bytes | None) -> None:
        """Reads the current map; None if there is none. Never raises: a bad map only sets `trouble`."""
        try:
            self.entries = {} if text is None else read_quotas(text)
        except BadConfig as error:
            kept = "the last valid quotas stay in force" if self.entries else "no quota is in force"
            self.trouble = f"{error}; {kept}"
        else:
            self.trouble = ""
