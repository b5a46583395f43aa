"""Label and field selectors: from query strings to predicates over objects."""

import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from aliquot.apiserver.objects import Object, dig
from aliquot.apiserver.statuses import BadRequest
from aliquot.kube.selectors import LabelSelector
from aliquot.model.bounds import MAX_SELECTOR_TERMS

Predicate: TypeAlias = Callable[[Object], bool]
_Labels: TypeAlias = dict[str, str]
_Requirement: TypeAlias = Callable[[_Labels], bool]

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"[-A-Za-z0-9_.]*"
_SET = re.compile(rf"({_NAME})\s+(in|notin)\s*\(([^()]*)\)")
_COMPARE = re.compile(rf"({_NAME})\s*(==|=|!=|>|<)\s*({_VALUE})")
_EXISTS = re.compile(rf"(!?)\s*({_NAME})")
_FIELD = re.compile(r"([A-Za-z_.]+)(==|!=|=)(.*)", re.DOTALL)

_ONE_NAME = re.compile(r"(?:^|,)metadata\.name==?([^,=]+)(?:,|$)")
_UNIVERSAL_FIELDS = ("metadata.name", "metadata.namespace")


def everything(_obj: Object) -> bool:
    return True


def parse_labels(text: str) -> Predicate:
    """Equality-based and set-based label selectors. Raises BadRequest."""
    requirements = [_label_requirement(part.strip(), text) for part in _bounded(_parts(text), "label")]

    def selects(obj: Object) -> bool:
        labels = dig(obj, "metadata", "labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return selects if requirements else everything


def parse_fields(text: str, allowed: tuple[str, ...]) -> Predicate:
    """Field selectors on the resource's fields. Raises BadRequest for others."""
    parts = [part for part in text.split(",") if part]
    terms = [_field_term(part, allowed) for part in _bounded(parts, "field")]

    def selects(obj: Object) -> bool:
        return all((_field_text(obj, path) == value) is wanted for path, value, wanted in terms)

    return selects if terms else everything


def selected_name(text: str) -> str:
    """The one name that field selectors allow; empty if they allow others, too."""
    found = _ONE_NAME.search(text)
    return found.group(1) if found else ""


def matches(selector: Object, labels: _Labels) -> bool:
    """Whether a workload's LabelSelector matches these labels."""
    return msgspec.convert(selector, LabelSelector).selects(labels)


def both(first: Predicate, second: Predicate) -> Predicate:
    if first is everything:
        return second
    if second is everything:
        return first
    return lambda obj: first(obj) and second(obj)


def _parts(text: str) -> list[str]:
    """Split at the commas outside brackets, in one pass: a regular expression would look ahead from each comma."""
    if not text.strip():
        return []
    parts, begin, is_inside = [], 0, False
    for position, character in enumerate(text):
        if character in "()":
            is_inside = character == "("
        elif character == "," and not is_inside:
            parts.append(text[begin:position])
            begin = position + 1
    return [*parts, text[begin:]]


def _bounded(parts: list[str], kind: str) -> list[str]:
    """Raises BadRequest for too many: every object, and every event of a watch, is compared with each."""
    if len(parts) > MAX_SELECTOR_TERMS:
        raise BadRequest(f"the {kind} selector has {len(parts)} requirements, more than {MAX_SELECTOR_TERMS}")
    return parts


def _label_requirement(part: str, whole: str) -> _Requirement:
    if match := _SET.fullmatch(part):
        name, operator, listed = match.groups()
        return _in_set(name, {value.strip() for value in listed.split(",")}, operator == "in")
    if match := _COMPARE.fullmatch(part):
        return _comparison(*match.groups())
    if match := _EXISTS.fullmatch(part):
        absent, name = match.groups()
        return lambda labels: (name in labels) is not bool(absent)
    raise BadRequest(f"unable to parse requirement {part!r} of the label selector {whole!r}")


def _in_set(name: str, values: set[str], wanted: bool) -> _Requirement:
    if wanted:
        return lambda labels: labels.get(name) in values
    return lambda labels: labels.get(name) not in values


def _comparison(name: str, operator: str, value: str) -> _Requirement:
    if operator in ("=", "=="):
        return lambda labels: labels.get(name) == value
    if operator == "!=":
        return lambda labels: labels.get(name) != value
    bound = _integer(value)
    if bound is None:
        raise BadRequest(f"for '>' and '<' the value must be an integer, not {value!r}")
    return lambda labels: _beyond(_integer(labels.get(name, "")), operator, bound)


def _beyond(number: int | None, operator: str, bound: int) -> bool:
    if number is None:
        return False
    return number > bound if operator == ">" else number < bound


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def _field_term(part: str, allowed: tuple[str, ...]) -> tuple[tuple[str, ...], str, bool]:
    match = _FIELD.fullmatch(part.strip())
    if match is None:
        raise BadRequest(f"invalid field selector {part!r}: it must be <field>=<value> or <field>!=<value>")
    field, operator, value = match.groups()
    if field not in _UNIVERSAL_FIELDS and field not in allowed:
        raise BadRequest(f"field label not supported: {field}")
    return tuple(field.split(".")), value, operator != "!="


def _field_text(obj: Object, path: tuple[str, ...]) -> str:
    value = dig(obj, *path)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
