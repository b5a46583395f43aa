"""Fencing: a placement needs the number of the current term of leadership."""

from typing import Any

from aliquot.control.admission import cel
from aliquot.model.admission import EPOCH_KEY, FENCED_KEYS
from aliquot.model.records import EPOCH


def spec() -> dict[str, Any]:
    """Bindings and patches without our annotations pass: kube-scheduler's own, kubelet's, users'."""
    variables = {
        "keys": cel.literal(FENCED_KEYS),
        "annotations": cel.after("annotations"),
        "oldAnnotations": cel.before("annotations"),
        "changes": """
            variables.keys.exists(key,
              (key in variables.annotations) != (key in variables.oldAnnotations)
              || (key in variables.annotations && variables.annotations[key] != variables.oldAnnotations[key]))
            """,
        "written": f'variables.annotations[?"{EPOCH}"].orValue("")',
        "term": f'params.?data[?"{EPOCH_KEY}"].orValue("")',
    }
    told = '"epoch \'" + variables.written + "\' is not that of the current term, \'" + variables.term + "\'"'
    validation = {
        "expression": '!variables.changes || (variables.term != "" && variables.written == variables.term)',
        "message": "the epoch is not that of the current term",
        "messageExpression": told,
        "reason": "Invalid",
    }
    return {
        "paramKind": dict(cel.CONFIG_MAP),
        "matchConstraints": cel.rules((["CREATE"], cel.BINDINGS), (["UPDATE"], ["pods", "pods/status"])),
        "variables": cel.variables(variables),
        "validations": [validation],
    }
