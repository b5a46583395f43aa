"""What schedulers can read as an answer."""

from typing import Any

import msgspec


class _Exact(msgspec.Struct, forbid_unknown_fields=True):
    """Every key, and no other."""


class Filter(_Exact, rename="pascal", kw_only=True):
    nodes: msgspec.Raw
    node_names: list[str] | None
    failed_nodes: dict[str, str] | None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    """Not there where an original did not know it."""
    error: str


class Bind(_Exact, rename="pascal"):
    error: str


class Priority(_Exact, rename="pascal"):
    host: str
    score: int


class MetaPod(_Exact):
    uid: str = msgspec.field(name="UID")


class MetaVictims(_Exact):
    pods: list[MetaPod] = msgspec.field(name="Pods")
    violations: int = msgspec.field(name="NumPDBViolations")


class Preempt(_Exact, rename="pascal"):
    node_name_to_meta_victims: dict[str, MetaVictims]


class Reason(_Exact, rename="pascal"):
    code: int
    reason: str


class PredicateList(_Exact):
    status: list[Reason]


class PredicateCode(_Exact):
    status: str
    code: int


class PredicateAny(_Exact, rename="camel"):
    error_message: str
    status: str
    code: int


class Scores(_Exact, rename="camel"):
    node_score: dict[str, float]
    error_message: str


class Event(_Exact, rename="camel"):
    error_message: str


_KINDS: dict[str, tuple[Any, ...]] = {
    "filter": (Filter,),
    "bind": (Bind,),
    "prioritize": (list[Priority] | None,),
    "preempt": (Preempt,),
    "predicate": (PredicateList, PredicateCode, PredicateAny, Event),
    "scores": (Scores,),
    "event": (Event,),
}


def kinds(body: bytes) -> set[str]:
    """Of which verbs this can be the answer; of none if it is no UTF-8."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return set()
    return {name for name, types in _KINDS.items() if any(_reads(body, kind) for kind in types)}


def _reads(body: bytes, kind: Any) -> bool:
    try:
        msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        return False
    return True
