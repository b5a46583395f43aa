"""Pieces of CEL that the policies share. Nothing newer than Kubernetes 1.30 knows."""

import json
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import Any


def literal(value: object) -> str:
    """Texts, lists and maps of JSON are literals of CEL as they stand; who reads a policy can read them back."""
    if not isinstance(value, Mapping):
        return json.dumps(value)
    entries = (f"  {json.dumps(key)}: {json.dumps(held)}" for key, held in value.items())
    return "{\n" + ",\n".join(entries) + "\n}"


def variables(expressions: Mapping[str, str]) -> list[dict[str, str]]:
    """Each may use those before it. One that nothing asks for is not evaluated."""
    return [{"name": name, "expression": cleandoc(text)} for name, text in expressions.items()]


def rules(*by_operation: tuple[Sequence[str], Sequence[str]]) -> dict[str, Any]:
    """Which operations on which resources of the core group."""
    entries = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": list(operations), "resources": list(resources)}
        for operations, resources in by_operation
    ]
    return {"resourceRules": entries}


def before(field: str) -> str:
    """A map of the metadata as it was; empty for what is new."""
    return f"oldObject == null ? {{}} : oldObject.metadata.?{field}.orValue({{}})"


def after(field: str) -> str:
    return f"object.metadata.?{field}.orValue({{}})"


def matches(pattern: str, name: str) -> str:
    """Whether a name is the pattern's; one that ends in `*` stands for all that begin so."""
    return (
        f'({pattern}.endsWith("*") ? {name}.startsWith({pattern}.substring(0, {pattern}.size() - 1)) '
        f": {name} == {pattern})"
    )


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
BINDINGS = ("pods/binding", "bindings")
