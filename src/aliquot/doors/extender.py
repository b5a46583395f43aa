"""kube-scheduler's extender protocol: what it sends and what it expects back.

Its structs have no JSON names, so keys are Go's (`NodeNames`); older schedulers sent them in lower case, and Go reads
any case. Whole Node objects are kept as bytes and given back untouched.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from aliquot.errors import BadInput
from aliquot.model import Pod

_T = TypeVar("_T")

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What the API server takes as a name; anything else could lead to another path there."""


class BadCall(BadInput):
    """A body that is no extender call."""


@dataclass(frozen=True)
class FilterCall:
    pod: Pod
    names: list[str]
    nodes: dict[str, msgspec.Raw] | None
    """Whole Node objects by name, if the scheduler sent those instead of names."""


@dataclass(frozen=True)
class BindCall:
    name: str
    namespace: str
    uid: str
    node: str


class _Metadata(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Metadata


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def read_filter(body: bytes) -> FilterCall:
    fields = _fields(body)
    if _absent(fields.get("pod")):
        raise BadCall("arg or pod is nil")
    pod = _decode("Pod", fields["pod"], Pod)
    if not _absent(fields.get("nodenames")):
        return FilterCall(pod, _decode("NodeNames", fields["nodenames"], list[str]), None)
    if _absent(fields.get("nodes")):
        raise BadCall("cannot get node names")
    items = _decode("Nodes", fields["nodes"], _NodeList).items or []
    nodes = {_decode("Nodes", item, _Named).metadata.name: item for item in items}
    return FilterCall(pod, list(nodes), nodes)


def read_bind(body: bytes) -> BindCall:
    fields = _fields(body)
    wanted = ("PodName", "PodNamespace", "PodUID", "Node")
    values = [_decode(name, fields.get(name.lower(), msgspec.Raw(b'""')), str) for name in wanted]
    for name, value in zip(wanted, values, strict=True):
        if not value:
            raise BadCall(f"{name} is missing")
        if name != "PodUID" and not _NAME.fullmatch(value):
            raise BadCall(f"{name} {value[:64]!r} is no name of a Kubernetes object")
    return BindCall(*values)


def filter_answer(call: FilterCall, refused: Mapping[str, str]) -> dict[str, object]:
    """All five keys, always. A refused node stands in both maps with the same text: 1.21 and later heed the first,
    older schedulers know only the second."""
    passed = [name for name in call.names if name not in refused]
    nodes = None if call.nodes is None else {"metadata": {}, "items": [call.nodes[name] for name in passed]}
    return {
        "Nodes": nodes,
        "NodeNames": passed,
        "FailedNodes": refused,
        "FailedAndUnresolvableNodes": refused,
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


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    if not body.strip():
        raise BadCall("EOF")
    fields = _decode("the body", body, dict[str, msgspec.Raw])
    return {name.lower(): value for name, value in fields.items()}


def _absent(value: msgspec.Raw | None) -> bool:
    return value is None or bytes(value) == b"null"


def _decode(what: str, raw: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadCall(f"{what} cannot be read: {error}") from error
