"""kube-scheduler's extender protocol: what it sends and what it expects back.

Its structs have no JSON names, so keys are Go's (`NodeNames`); older schedulers sent them in lower case, and Go reads
any case. Whole Node objects are kept as bytes and given back untouched.
"""

import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

import msgspec

from aliquot.doors import spelling
from aliquot.doors.names import BadName, Names
from aliquot.errors import BadInput
from aliquot.model import Pod

_T = TypeVar("_T")

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What the API server takes as a name; anything else could lead to another path there."""


_PIECE = 2**20


class BadCall(BadInput):
    """A body that is no extender call."""


@dataclass(frozen=True)
class FilterCall:
    """prioritize is called with the same."""

    pod: Pod
    names: Names
    nodes: dict[str, msgspec.Raw] | None = None
    """Whole Node objects by name, if the scheduler sent those instead of names."""
    node_list: msgspec.Raw | None = None
    """The NodeList in which they came."""


@dataclass(frozen=True)
class BindCall:
    name: str
    namespace: str
    uid: str
    node: str


@dataclass(frozen=True)
class Victims:
    """Pods on one node, by UID, that are to end for another."""

    uids: list[str]
    pdb_violations: int = 0


@dataclass(frozen=True)
class PreemptCall:
    pod: Pod
    victims: Mapping[str, Victims] = field(default_factory=dict)
    """By node."""


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Named(msgspec.Struct):
    metadata: _Metadata | None = None


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def read_filter(body: bytes, passed: Names | None = None) -> FilterCall:
    """`passed` are the nodes that filter let pass last: prioritize is asked about the same."""
    fields = _fields(body)
    pod = _pod(fields)
    if not _absent(fields.get("nodenames")):
        return FilterCall(pod, _names(bytes(fields["nodenames"]), passed))
    if _absent(fields.get("nodes")):
        raise BadCall("cannot get node names")
    _require_text("Nodes", body)
    reader = _Reader("Nodes")
    nodes = {reader.name(item): item for item in _items(fields["nodes"])}
    return FilterCall(pod, _names(msgspec.json.encode(list(nodes))), nodes, fields["nodes"])


def read_bind(body: bytes) -> BindCall:
    fields = _fields(body)
    wanted = ("PodName", "PodNamespace", "PodUID", "Node")
    values = [_decode(name, fields.get(name.lower(), msgspec.Raw(b'""')), str) for name in wanted]
    for name, value in zip(wanted, values, strict=True):
        if not value:
            raise BadCall(f"{name} is missing")
        if name != "PodUID":
            _require_name(name, value)
    return BindCall(*values)


def read_preempt(body: bytes) -> PreemptCall:
    """Victims come as whole pods, or as UIDs alone from a scheduler that is told `nodeCacheCapable`."""
    fields = _fields(body)
    pod = _pod(fields)
    whole = _Reader("NodeNameToVictims")
    for name, uid_of in (("NodeNameToMetaVictims", _meta_uid), ("NodeNameToVictims", whole.uid)):
        raw = fields.get(name.lower())
        if raw is not None and not _absent(raw):
            nodes = _decode(name, raw, dict[str, msgspec.Raw])
            victims = {node: _victims(name, value, uid_of) for node, value in nodes.items() if not _absent(value)}
            return PreemptCall(pod, victims)
    return PreemptCall(pod)


def filter_answer(call: FilterCall, passed: Sequence[str], refused: Mapping[str, str]) -> dict[str, object]:
    """All five keys. A refused node stands in both maps with the same text: kube-scheduler 1.21 and later heed
    `FailedAndUnresolvableNodes`, older ones know only `FailedNodes`."""
    nodes: object = None
    if call.nodes is not None:
        whole = len(passed) == len(call.names)
        nodes = call.node_list if whole else {"metadata": {}, "items": [call.nodes[name] for name in passed]}
    return {
        "Nodes": nodes,
        "NodeNames": passed,
        "FailedNodes": refused,
        "FailedAndUnresolvableNodes": refused or None,
        "Error": "",
    }


def filter_fault(error: str) -> dict[str, object]:
    return {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": None,
        "FailedAndUnresolvableNodes": None,
        "Error": error,
    }


def preempt_answer(left: Mapping[str, Victims]) -> dict[str, object]:
    """UIDs alone, whatever came in. A node that is not named is no candidate any more."""
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in victims.uids], "NumPDBViolations": victims.pdb_violations}
            for node, victims in left.items()
        }
    }


def _pod(fields: Mapping[str, msgspec.Raw]) -> Pod:
    if _absent(fields.get("pod")):
        raise BadCall("arg or pod is nil")
    raw = bytes(fields["pod"])
    return _read_pod(raw) if len(raw) <= spelling.LARGEST else with_names(_decode("Pod", raw, Pod))


@lru_cache(maxsize=1)
def _read_pod(raw: bytes) -> Pod:
    """prioritize comes right after filter, with the very same one."""
    return with_names(_decode("Pod", raw, Pod, spelling.read))


def with_names(pod: Pod) -> Pod:
    """A pod of a caller's; some of its calls make us write on it later. Raises BadCall."""
    for what, value in (("name", pod.metadata.name), ("namespace", pod.metadata.namespace)):
        if value:
            _require_name(f"the pod's {what}", value)
    return pod


def _require_name(what: str, value: str) -> None:
    if not _NAME.fullmatch(value):
        raise BadCall(f"{what} {value[:64]!r} is no name of a Kubernetes object")


def _names(array: bytes, again: Names | None = None) -> Names:
    try:
        return Names.read(array, again)
    except (BadName, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadCall(f"NodeNames cannot be read: {error}") from error


def _victims(what: str, raw: msgspec.Raw, uid_of: Callable[[msgspec.Raw], str]) -> Victims:
    fields = _lower(_decode(what, raw, dict[str, msgspec.Raw]))
    pods = fields.get("pods", msgspec.Raw(b"null"))
    violations = fields.get("numpdbviolations", msgspec.Raw(b"0"))
    uids = [] if _absent(pods) else [uid_of(pod) for pod in _decode(what, pods, list[msgspec.Raw])]
    return Victims(uids, _decode(what, violations, int))


def _meta_uid(raw: msgspec.Raw) -> str:
    what = "NodeNameToMetaVictims"
    return _text(what, _lower(_decode(what, raw, dict[str, msgspec.Raw])), "uid")


class _Reader:
    """Of objects, of which thousands come at once: those that are spelled as usual are looked through once. Other
    spellings take many times longer, and are read up to some bytes in all."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._left = spelling.LARGEST

    def name(self, raw: msgspec.Raw) -> str:
        found = _decode(self._what, raw, _Named).metadata
        return (found.name if found else "") or self._other(raw, "name")

    def uid(self, raw: msgspec.Raw) -> str:
        found = _decode(self._what, raw, _Named).metadata
        return (found.uid if found else "") or self._other(raw, "uid")

    def _other(self, raw: msgspec.Raw, key: str) -> str:
        self._left -= memoryview(raw).nbytes
        if self._left < 0:
            raise BadCall(f"{self._what} cannot be read: too much without a {key}")
        whole = _lower(_decode(self._what, raw, dict[str, msgspec.Raw])).get("metadata")
        if whole is None or _absent(whole):
            raise BadCall(f"{self._what} cannot be read: an object without metadata")
        return _text(self._what, _lower(_decode(self._what, whole, dict[str, msgspec.Raw])), key)


def _text(what: str, fields: Mapping[str, msgspec.Raw], key: str) -> str:
    return _decode(what, fields.get(key, msgspec.Raw(b'""')), str)


def _items(raw: msgspec.Raw) -> list[msgspec.Raw]:
    items = _decode("Nodes", raw, _NodeList).items
    if items is None:
        other = _lower(_decode("Nodes", raw, dict[str, msgspec.Raw])).get("items")
        items = [] if other is None or _absent(other) else _decode("Nodes", other, list[msgspec.Raw])
    return items


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    if not body.strip():
        raise BadCall("EOF")
    return _lower(_decode("the body", body, dict[str, msgspec.Raw]))


def _lower(fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    return {name.lower(): value for name, value in fields.items()}


def _require_text(what: str, body: bytes) -> None:
    """What is given back untouched must be UTF-8; in bytes that stay bytes, msgspec does not look for that."""
    if body.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(body), _PIECE):
            decoder.decode(body[start : start + _PIECE])
        decoder.decode(b"", True)
    except UnicodeDecodeError as error:
        raise BadCall(f"{what} cannot be read: the body is no UTF-8") from error


def _absent(value: msgspec.Raw | None) -> bool:
    return value is None or bytes(value) == b"null"


def _plainly(raw: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    return msgspec.json.decode(raw, type=kind)


def _decode(
    what: str, raw: bytes | msgspec.Raw, kind: type[_T], how: Callable[[bytes | msgspec.Raw, type[_T]], _T] = _plainly
) -> _T:
    try:
        return how(raw, kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadCall(f"{what} cannot be read: {error}") from error
