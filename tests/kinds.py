"""Writes src/aliquot/embedded/api/schema/kinds.txt from Kubernetes' own declarations, found in Go's module cache.

python -m tests.kinds ~/go/pkg/mod/k8s.io/api@v0.37.0 ~/go/pkg/mod/k8s.io/apimachinery@v0.37.0
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

INTO = Path(__file__).parent.parent / "src" / "aliquot" / "embedded" / "api" / "schema" / "kinds.txt"
ROOTS = (
    *(f"core.v1.{kind}" for kind in ("Pod", "Node", "Namespace", "ConfigMap", "Secret", "Service", "ServiceAccount")),
    *(f"core.v1.{kind}" for kind in ("PersistentVolumeClaim", "Event", "Binding", "ResourceQuota")),
    *(f"apps.v1.{kind}" for kind in ("Deployment", "ReplicaSet", "StatefulSet")),
    *(f"rbac.v1.{kind}" for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")),
    *(f"authorization.v1.{kind}" for kind in ("SelfSubjectAccessReview", "SubjectAccessReview")),
    *(f"admissionregistration.v1.ValidatingAdmissionPolicy{kind}" for kind in ("", "Binding")),
    "authentication.v1.TokenReview",
    "authentication.v1.SelfSubjectReview",
    "autoscaling.v1.Scale",
    "batch.v1.Job",
    "coordination.v1.Lease",
    "meta.v1.DeleteOptions",
    "policy.v1.Eviction",
    "policy.v1.PodDisruptionBudget",
    "scheduling.v1.PriorityClass",
)
_HEAD = """\
# The fields of the kinds that the embedded API server knows, by their numbers in protobuf.
# Made by tests/kinds.py; do not edit. [T] is a list, {T} a map from text, +T has its fields in place.
# T? can be told apart from the empty T.
"""
_SCALARS = {"int32": "int", "int64": "int", "double": "number", "string": "string", "bool": "bool", "bytes": "bytes"}
_LEAVES = ("Quantity", "IntOrString", "Time", "MicroTime", "FieldsV1", "RawExtension", "Duration", "ExtraValue")
_FIELD = re.compile(r"\s+(optional|repeated)? ?(map<string, ?([.\w]+)>|[.\w]+) (\w+) = (\d+);")
_MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r'json:"(?:,inline)?" protobuf:"bytes,(\d+),')
_POINTER = re.compile(r'^\s+\w+\s+\*\w+\s+`.*?protobuf:"\w+,(\d+),', re.MULTILINE)
_NAMED = re.compile(r'json:"(\w+)[^"]*".*?protobuf:"\w+,(\d+),')


@dataclass
class Tags:
    """What Go's structs say about JSON, by number: names, fields that stand in place, and fields that may be nil."""

    names: dict[str, str] = field(default_factory=dict)
    in_place: set[str] = field(default_factory=set)
    pointers: set[str] = field(default_factory=set)


@dataclass
class Message:
    lines: list[str] = field(default_factory=list)
    uses: list[str] = field(default_factory=list)


def main(api: Path, machinery: Path) -> None:
    folders = {f"{path.parent.name}.{path.name}": path for path in api.glob("*/v*")}
    folders["meta.v1"] = machinery / "pkg" / "apis" / "meta" / "v1"
    messages: dict[str, Message] = {}
    for package, folder in folders.items():
        if (folder / "generated.proto").exists():
            messages |= _messages(package, folder)
    INTO.write_text(_HEAD + "".join(_blocks(messages)))


def _messages(package: str, folder: Path) -> Iterator[tuple[str, Message]]:
    tags = _tags((folder / "types.go").read_text())
    text = (folder / "generated.proto").read_text()
    for match in _MESSAGE.finditer(text):
        yield f"{package}.{match[1]}", _message(package, match[2], tags.get(match[1], Tags()))


def _tags(source: str) -> dict[str, Tags]:
    found = {}
    for match in re.finditer(r"^type (\w+) struct \{\n(.*?)^\}", source, re.MULTILINE | re.DOTALL):
        names = {number: name for name, number in _NAMED.findall(match[2])}
        found[match[1]] = Tags(names, set(_INLINE.findall(match[2])), set(_POINTER.findall(match[2])))
    return found


def _message(package: str, body: str, tags: Tags) -> Message:
    message = Message()
    for line in body.splitlines():
        if match := _FIELD.match(line):
            label, plain, held, name, number = match.groups()
            kind = _kind(package, held or plain, message)
            if kind in _SCALARS.values() and number in tags.pointers:
                kind += "?"
            shown = f"{{{kind}}}" if held else f"[{kind}]" if label == "repeated" else kind
            if number in tags.in_place:
                message.lines.append(f" {number} +{kind}")
            else:
                message.lines.append(f" {number} {tags.names.get(number, name)} {shown}")
    return message


def _kind(package: str, name: str, message: Message) -> str:
    if name in _SCALARS:
        return _SCALARS[name]
    parts = name.strip(".").split(".")
    if parts[-1] in _LEAVES:
        return parts[-1]
    qualified = ".".join(parts[-3:]) if len(parts) > 1 else f"{package}.{name}"
    message.uses.append(qualified)
    return qualified


def _blocks(messages: dict[str, Message]) -> Iterator[str]:
    waiting, seen = list(ROOTS), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += messages[name].uses
    for name in sorted(seen):
        yield "\n".join(["", name, *messages[name].lines, ""])


if __name__ == "__main__":
    main(Path(sys.argv[1]).expanduser(), Path(sys.argv[2]).expanduser())
