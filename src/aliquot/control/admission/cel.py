"""CEL snippets shared by the policies. They use nothing newer than Kubernetes 1.30."""

import json
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import Any


def literal(value: object) -> str:
    """Format a value as CEL. JSON strings, lists and maps are valid CEL literals; readers of a policy can parse them
    back."""
    if not isinstance(value, Mapping):
        return json.dumps(value)
    entries = (f"  {json.dumps(key)}: {json.dumps(held)}" for key, held in value.items())
    return "{\n" + ",\n".join(entries) + "\n}"


def variables(expressions: Mapping[str, str]) -> list[dict[str, str]]:
    """Each may use the variables before it. Unused variables are not evaluated."""
    return [{"name": name, "expression": cleandoc(text)} for name, text in expressions.items()]


def rules(*by_operation: tuple[Sequence[str], Sequence[str]]) -> dict[str, Any]:
    """Match operations on resources of the core group."""
    entries = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": list(operations), "resources": list(resources)}
        for operations, resources in by_operation
    ]
    return {"resourceRules": entries}


def before(field: str) -> str:
    """A metadata map before the change; empty for a new object."""
    return f"oldObject == null ? {{}} : oldObject.metadata.?{field}.orValue({{}})"


def after(field: str) -> str:
    return f"object.metadata.?{field}.orValue({{}})"


def matches(pattern: str, name: str) -> str:
    """Whether a name matches a pattern; a trailing `*` matches every name with that prefix."""
    return (
        f'({pattern}.endsWith("*") ? {name}.startsWith({pattern}.substring(0, {pattern}.size() - 1)) '
        f": {name} == {pattern})"
    )


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
BINDINGS = ("pods/binding", "bindings")
