"""kube-scheduler's extender protocol: its requests, and the responses it expects.

Its structs have no JSON names, so keys are Go's (`NodeNames`). Older schedulers sent them in lower case, and Go reads
any case. Whole Node objects stay bytes, and we return them untouched.
"""

import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, TypeVar

import msgspec

from aliquot.endpoints import json_keys
from aliquot.endpoints.names import BadName, Names
from aliquot.endpoints.object_limit import BadCall as BadCall
from aliquot.endpoints.object_limit import Counted, object_limit
from aliquot.model import Pod
from aliquot.model.bounds import KIB, LARGEST_NAMES, LARGEST_POD, LONGEST_ID, MAX_OBJECTS

_T = TypeVar("_T")

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""Names that the API server accepts; anything else could lead to another path there."""


_PIECE = 2**20
_NULL = b"null"
_ANY_SPELLING = 256 * KIB
"""Max bytes of victims to decode in any spelling: it takes ten times as long."""


@dataclass(frozen=True)
class FilterCall:
    """The arguments of filter and prioritize."""

    pod: Pod
    names: Names
    nodes: dict[str, msgspec.Raw] | None = None
    """Whole Node objects by name, if the scheduler sent those instead of names."""
    node_list: msgspec.Raw | None = None
    """The NodeList that contained them."""


@dataclass(frozen=True)
class BindCall:
    name: str
    namespace: str
    uid: str
    node: str


@dataclass(frozen=True)
class Victims:
    """Pods to evict from a node, by UID."""

    uids: list[str]
    pdb_violations: int = 0


@dataclass(frozen=True)
class PreemptCall:
    pod: Pod
    victims: Mapping[str, Victims] = field(default_factory=dict)
    """By node."""


Id = Annotated[str, msgspec.Meta(max_length=LONGEST_ID)]
"""A name or a UID."""


class _Metadata(msgspec.Struct):
    name: Id = ""
    uid: Id = ""


class _Named(Counted):
    metadata: _Metadata | None = None


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _NamedList(msgspec.Struct):
    items: list[_Named] | None = None


class _Evicted(Counted):
    """A victim, as current and old schedulers spell it."""

    uid: Id = msgspec.field(name="UID", default="")
    old_uid: Id = msgspec.field(name="uid", default="")
    metadata: _Metadata | None = None

    def id(self) -> str:
        return self.uid or self.old_uid or (self.metadata.uid if self.metadata else "")


class _Evictions(Counted):
    pods: list[_Evicted] | None = msgspec.field(name="Pods", default=None)
    old_pods: list[_Evicted] | None = msgspec.field(name="pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)
    old_violations: int = msgspec.field(name="numPDBViolations", default=0)

    def victims(self) -> Victims:
        uids = [pod.id() for pod in self.pods or self.old_pods or ()]
        return Victims(uids, self.violations or self.old_violations)


_FIELDS = ("Pod", "Nodes", "NodeNames", "NodeNameToMetaVictims", "NodeNameToVictims")
_SPELLINGS = sorted({spelled for name in _FIELDS for spelled in (name, name.lower(), name[0].lower() + name[1:])})
_Large = msgspec.defstruct("_Large", [(name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for name in _SPELLINGS])
"""The fields to read from a large body, in the spellings of all scheduler versions."""


def read_filter(body: bytes, passed: Names | None = None) -> FilterCall:
    """Decode a call. `passed` is what the last filter passed: prioritize asks about the same nodes."""
    fields = _fields(body)
    pod = _pod(fields)
    if not _absent(fields.get("nodenames")):
        return FilterCall(pod, _names(bytes(fields["nodenames"]), passed))
    if _absent(fields.get("nodes")):
        raise BadCall("cannot get node names")
    _require_text("Nodes", body)
    nodes = _nodes(fields["nodes"])
    return FilterCall(pod, _names(msgspec.json.encode(list(nodes))), nodes, fields["nodes"])


def read_bind(body: bytes) -> BindCall:
    fields = _fields(body)
    wanted = ("PodName", "PodNamespace", "PodUID", "Node")
    values = [_decode(name, fields.get(name.lower(), msgspec.Raw(b'""')), str) for name in wanted]
    for name, value in zip(wanted, values, strict=True):
        if not value:
            raise BadCall(f"{name} is missing")
        if name == "PodUID":
            require_id(name, value)
        else:
            _require_name(name, value)
    return BindCall(*values)


def read_preempt(body: bytes) -> PreemptCall:
    """Decode victims: whole pods, or only UIDs from a scheduler with `nodeCacheCapable`."""
    fields = _fields(body)
    pod = _pod(fields)
    for name, uid_of in (("NodeNameToMetaVictims", _meta_uid), ("NodeNameToVictims", _whole_uid)):
        raw = fields.get(name.lower())
        if raw is not None and not _absent(raw):
            if memoryview(raw).nbytes > _ANY_SPELLING:
                return PreemptCall(pod, _many_victims(name, raw))
            nodes = _decode(name, raw, dict[str, msgspec.Raw])
            victims = {node: _victims(name, value, uid_of) for node, value in nodes.items() if not _absent(value)}
            return PreemptCall(pod, victims)
    return PreemptCall(pod)


def filter_answer(call: FilterCall, passed: Sequence[str], refused: Mapping[str, str]) -> dict[str, object]:
    """Build all five keys. A refused node is in both maps with the same text: kube-scheduler 1.21 and later read
    `FailedAndUnresolvableNodes`, older versions know only `FailedNodes`."""
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
    """Build an answer with UIDs only, for any input. A node that it omits is no longer a candidate."""
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in victims.uids], "NumPDBViolations": victims.pdb_violations}
            for node, victims in left.items()
        }
    }


def _pod(fields: Mapping[str, msgspec.Raw]) -> Pod:
    if _absent(fields.get("pod")):
        raise BadCall("arg or pod is nil")
    if _is_large(fields["pod"]):
        raise BadCall(f"Pod has more than {LARGEST_POD} bytes")
    return _read_pod(bytes(fields["pod"]))


@lru_cache(maxsize=1)
def _read_pod(raw: bytes) -> Pod:
    """Decode a pod and cache it: prioritize follows filter with the same bytes."""
    return with_names(_decode("Pod", raw, Pod, json_keys.decode_any_case))


def with_names(pod: Pod) -> Pod:
    """Validate a caller's pod, since some calls make us write to it later. Raises BadCall."""
    for what, value in (("name", pod.metadata.name), ("namespace", pod.metadata.namespace)):
        if value:
            _require_name(f"the pod's {what}", value)
    require_id("the pod's UID", pod.metadata.uid)
    return pod


def require_id(what: str, value: str) -> None:
    """Limit a UID's length: we store it for a while for any caller. Raises BadCall."""
    if len(value) > LONGEST_ID:
        raise BadCall(f"{what} {value[:64]!r}... has more than {LONGEST_ID} characters")


def _require_name(what: str, value: str) -> None:
    if not _NAME.fullmatch(value):
        raise BadCall(f"{what} {value[:64]!r} is not a valid Kubernetes object name")


def _names(array: bytes, again: Names | None = None) -> Names:
    if len(array) > LARGEST_NAMES or array.count(b",") >= MAX_OBJECTS:
        raise BadCall(f"NodeNames has more than {MAX_OBJECTS} names or {LARGEST_NAMES} bytes")
    try:
        return Names.read(array, again)
    except (BadName, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadCall(f"cannot decode NodeNames: {error}") from error


def _victims(what: str, raw: msgspec.Raw, uid_of: Callable[[msgspec.Raw], str]) -> Victims:
    fields = _lower(_decode(what, raw, dict[str, msgspec.Raw]))
    pods = fields.get("pods", msgspec.Raw(b"null"))
    violations = fields.get("numpdbviolations", msgspec.Raw(b"0"))
    uids = [] if _absent(pods) else [uid_of(pod) for pod in _decode(what, pods, list[msgspec.Raw])]
    return Victims(uids, _decode(what, violations, int))


def _meta_uid(raw: msgspec.Raw) -> str:
    what = "NodeNameToMetaVictims"
    return _text(what, _lower(_decode(what, raw, dict[str, msgspec.Raw])), "uid")


def _whole_uid(raw: msgspec.Raw) -> str:
    what = "NodeNameToVictims"
    with object_limit():
        found = _decode(what, raw, _Named).metadata
    return (found.uid if found else "") or _spelled_otherwise(what, raw, "uid")


def _many_victims(what: str, raw: msgspec.Raw) -> dict[str, Victims]:
    """Decode only the schedulers' spelling: others take many times longer, so we read them up to a size limit."""
    with object_limit():
        nodes = _decode(what, raw, dict[str, _Evictions])
    found = {node: evictions.victims() for node, evictions in nodes.items()}
    if not all(all(victims.uids) for victims in found.values()):
        raise BadCall(f"cannot decode {what}: a victim has no UID")
    return found


def _nodes(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Nodes by name. We decode usual spellings twice, whatever the nodes contain. Other spellings take many times
    longer, so we limit their total bytes."""
    with object_limit():
        named = _decode("Nodes", raw, _NamedList).items
    if named is None:
        raw = _other_items(raw)
        with object_limit():
            named = _decode("Nodes", raw, list[_Named])
        items = _decode("Nodes", raw, list[msgspec.Raw])
    else:
        items = _decode("Nodes", raw, _NodeList).items or []
    left, found = LARGEST_POD, dict[str, msgspec.Raw]()
    for node, item in zip(named, items, strict=True):
        name = node.metadata.name if node.metadata else ""
        if not name:
            left -= memoryview(item).nbytes
            if left < 0:
                raise BadCall("cannot decode Nodes: too many bytes without metadata.name")
            name = _spelled_otherwise("Nodes", item, "name")
        found[name] = item
    return found


def _other_items(raw: msgspec.Raw) -> msgspec.Raw:
    if _is_large(raw):
        raise BadCall("cannot decode Nodes: too many bytes without items")
    items = _lower(_decode("Nodes", raw, dict[str, msgspec.Raw])).get("items")
    return msgspec.Raw(b"[]") if items is None or _absent(items) else items


def _spelled_otherwise(what: str, raw: msgspec.Raw, key: str) -> str:
    metadata = _lower(_decode(what, raw, dict[str, msgspec.Raw])).get("metadata")
    if metadata is None or _absent(metadata):
        raise BadCall(f"cannot decode {what}: an object has no metadata")
    return _text(what, _lower(_decode(what, metadata, dict[str, msgspec.Raw])), key)


def _text(what: str, fields: Mapping[str, msgspec.Raw], key: str) -> str:
    return _decode(what, fields.get(key, msgspec.Raw(b'""')), Id)


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    """Fields by lower-case name. A small body may use any spelling."""
    if not body or body.isspace():
        raise BadCall("EOF")
    if len(body) <= LARGEST_POD:
        return _lower(_decode("the body", body, dict[str, msgspec.Raw]))
    large = _decode("the body", body, _Large)
    found = ((name, getattr(large, name)) for name in _SPELLINGS)
    return {name.lower(): value for name, value in found if value is not msgspec.UNSET}


def _is_large(raw: msgspec.Raw) -> bool:
    return memoryview(raw).nbytes > LARGEST_POD


def _lower(fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    return {name.lower(): value for name, value in fields.items()}


def _require_text(what: str, body: bytes) -> None:
    """Require UTF-8, since we return the bytes untouched: msgspec does not validate bytes that stay bytes."""
    if body.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(body), _PIECE):
            decoder.decode(body[start : start + _PIECE])
        decoder.decode(b"", True)
    except UnicodeDecodeError as error:
        raise BadCall(f"cannot decode {what}: the body is not UTF-8") from error


def _absent(value: msgspec.Raw | None) -> bool:
    return value is None or (memoryview(value).nbytes == len(_NULL) and bytes(value) == _NULL)


def _plainly(raw: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    return msgspec.json.decode(raw, type=kind)


def _decode(
    what: str, raw: bytes | msgspec.Raw, kind: type[_T], how: Callable[[bytes | msgspec.Raw, type[_T]], _T] = _plainly
) -> _T:
    try:
        return how(raw, kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadCall(f"cannot decode {what}: {error}") from error
