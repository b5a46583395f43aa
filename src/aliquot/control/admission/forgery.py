"""Forgery: only Aliquot, and the accounts of the originals that it replaces, may write where a pod was placed.

The tables are separate variables, as JSON, so that readers of the policy find them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aliquot.control.admission import cel
from aliquot.dialects import Dialect, Dialects
from aliquot.model.admission import OUR_KEYS, OUR_LIST, WRITERS_MAP

_PARTS_OF_PODS = ("pods", "pods/status", "pods/ephemeralcontainers", "pods/resize")


def spec(dialects: Dialects, namespace: str) -> dict[str, Any]:
    """On an update only changed keys matter, so users, kubelet and controllers can do the rest as before."""
    told = (
        'request.userInfo.username + " may not write " + variables.forged[0]'
        ' + (variables.forged.size() > 1 ? " and " + string(variables.forged.size() - 1) + " more" : "") + '
        f'": only Aliquot decides where a pod is placed and how large its part is; leave it out, or list the account '
        f'in ConfigMap {namespace}/{WRITERS_MAP}"'
    )
    is_trusted = f'"{OUR_LIST}" in variables.trusted'
    validation = {
        "expression": f"variables.touched.size() == 0 || {is_trusted} || variables.forged.size() == 0",
        "message": "only Aliquot decides where a pod is placed and how large its part is",
        "messageExpression": told,
        "reason": "Forbidden",
    }
    return {
        "paramKind": dict(cel.CONFIG_MAP),
        "matchConstraints": cel.rules((["CREATE", "UPDATE"], _PARTS_OF_PODS), (["CREATE"], cel.BINDINGS)),
        "variables": cel.variables({**tables(dialects), **_found(dialects), **_JUDGED}),
        "validations": [validation],
    }


def tables(dialects: Dialects) -> Mapping[str, str]:
    """The guarded keys and resources, by the dialects that declare them. A trailing `*` matches every name with that
    prefix."""
    return {
        "lists": cel.literal(list(dict.fromkeys([OUR_LIST, *dialects]))),
        "ours": cel.literal(OUR_KEYS),
        "placement": cel.literal(_declared(dialects, lambda dialect: dialect.placement_keys)),
        "sizes": cel.literal(_declared(dialects, lambda dialect: dialect.size_keys)),
        "resources": cel.literal(_declared(dialects, lambda dialect: dialect.guarded_resources)),
    }


def _declared(dialects: Dialects, declaration: Callable[[Dialect], Sequence[str]]) -> Mapping[str, Sequence[str]]:
    """Pattern -> the dialects that declare it."""
    found: dict[str, list[str]] = {}
    for name, dialect in dialects.items():
        for pattern in declaration(dialect):
            found.setdefault(pattern, []).append(name)
    return found


def _beginning(dialects: Dialects) -> str:
    """A regular expression for the keys whose patterns end in `*`."""
    patterns = [key for dialect in dialects.values() for key in (*dialect.placement_keys, *dialect.size_keys)]
    beginnings = dict.fromkeys(re.escape(pattern[:-1]) for pattern in patterns if pattern.endswith("*"))
    return f"^({'|'.join(beginnings)})"


def _changes(field: str, old: str) -> str:
    now, was = f"variables.{field}", f"variables.{old}"
    return f"(key in {now}) != (key in {was}) || (key in {now} && {now}[key] != {was}[key])"


def _shut(table: str) -> str:
    """The patterns of a table declared for the pod's resources for which the user is on no list."""
    names = f"variables.{table}[pattern]"
    listed = f"{names}.exists(who, who in variables.asked && who in variables.trusted)"
    return f"variables.{table}.filter(pattern, {names}.exists(who, who in variables.asked) && !{listed})"


def _found(dialects: Dialects) -> Mapping[str, str]:
    """The table keys that a change touches.

    A pod may have thousands of keys, an expression has a budget, and the server's time for it grows with the square of
    the work. So the policy loops over the tables, not over the pod, and finds keys by prefix in a single step each.
    """
    expression = cel.literal(_beginning(dialects))
    return {
        "annotations": cel.after("annotations"),
        "oldAnnotations": cel.before("annotations"),
        "labels": cel.after("labels"),
        "oldLabels": cel.before("labels"),
        **{
            f"{field}ByBeginning": f"variables.{field}.filter(key, key.matches({expression}))"
            for field in ("annotations", "oldAnnotations", "labels", "oldLabels")
        },
        "candidates": """
            variables.ours + variables.placement.map(pattern, pattern) + variables.sizes.map(pattern, pattern)
            + variables.annotationsByBeginning + variables.labelsByBeginning
            + variables.oldAnnotationsByBeginning.filter(key, !(key in variables.annotations))
            + variables.oldLabelsByBeginning.filter(key, !(key in variables.labels))
            """,
        "touched": f"""
            variables.annotations == variables.oldAnnotations && variables.labels == variables.oldLabels
            ? [] : variables.candidates.filter(key,
              {_changes("annotations", "oldAnnotations")}
              || {_changes("labels", "oldLabels")})
            """,
    }


_JUDGED = {
    "trusted": r"""
        variables.lists.filter(who, params.?data[?who].orValue("").replace(",", "\n").split("\n")
          .exists(account, account.trim() == request.userInfo.username))
        """,
    "bound": 'oldObject != null && dyn(oldObject).?spec.?nodeName.orValue("") != ""',
    "containers": """
        dyn(object).?spec.?containers.orValue([]) + dyn(object).?spec.?initContainers.orValue([])
        """,
    # a Binding does not contain its pod's resources: it could be any dialect
    "asked": f"""
        variables.lists.filter(who, request.kind.kind == "Binding" || variables.resources.exists(pattern,
          who in variables.resources[pattern] && variables.containers.exists(container,
            container.?resources.?limits.orValue({{}}).exists(name, {cel.matches("pattern", "name")})
            || container.?resources.?requests.orValue({{}}).exists(name, {cel.matches("pattern", "name")}))))
        """,
    "shut": f"""
        {_shut("placement")}
        + (variables.bound ? {_shut("sizes")} : [])
        """,
    "shutBeginnings": """
        variables.shut.filter(pattern, pattern.endsWith("*")).map(pattern, pattern.substring(0, pattern.size() - 1))
        """,
    "forged": """
        variables.touched.filter(key, key in variables.ours || key in variables.shut
          || variables.shutBeginnings.exists(beginning, key.startsWith(beginning)))
        """,
}
