"""Protects the ConfigMaps of the other policies from deletion: without them those policies would let everything
pass."""

from typing import Any

from aliquot.control.admission import cel
from aliquot.model.admission import EPOCH_MAP, WRITERS_MAP


def spec(namespace: str) -> dict[str, Any]:
    """Matches the deleted object, not the request, which has no name when a namespace is emptied."""
    read = [f"{namespace}/{name}" for name in (EPOCH_MAP, WRITERS_MAP)]
    validation = {
        "expression": '!((oldObject.metadata.namespace + "/" + oldObject.metadata.name) in variables.read)',
        "message": "Aliquot's admission policies read this ConfigMap: delete the policies and their bindings first",
        "reason": "Forbidden",
    }
    return {
        "matchConstraints": cel.rules((["DELETE"], ["configmaps"])),
        "variables": cel.variables({"read": cel.literal(read)}),
        "validations": [validation],
    }
