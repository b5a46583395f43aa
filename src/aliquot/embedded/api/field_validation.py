"""Fields of the wrong type are refused. Unknown fields are never stored; `fieldValidation` says how the sender learns
of that.

Strict refuses (kubectl's default), Warn answers with a warning (the server's default), Ignore says nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from aliquot.apiserver.objects import Object
from aliquot.apiserver.statuses import BadRequest, Invalid, StatusError, invalid, unsupported
from aliquot.embedded.api.patches import Patch
from aliquot.embedded.api.resources import WritableResource
from aliquot.embedded.api.schema.table import message_of
from aliquot.embedded.api.schema.types import wrong_type
from aliquot.embedded.api.schema.unknown import unknown_fields, without_unknown

Directive = Literal["Strict", "Warn", "Ignore"]


class FieldValidation:
    """The field validation of one request."""

    def __init__(self, resource: WritableResource, query: Mapping[str, str], warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._resource = resource
        self._directive = _directive(query)
        self._message = message_of(resource.group, resource.version, resource.kind)

    def body(self, obj: Object) -> Object:
        """The object without unknown fields. Raises BadRequest, also for a field of the wrong type."""
        kind, version = self._resource.kind, self._resource.version

        def refusal(problem: str) -> StatusError:
            return BadRequest(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}')

        return self._known(obj, refusal)

    def patch(self, body: Any, patch: Patch) -> Patch:
        """The patch, which raises Invalid if it adds an unknown field, or one of the wrong type."""

        def refusal(problem: str) -> StatusError:
            return Invalid("", "", "", [invalid("patch", msgspec.json.encode(body).decode(), problem)])

        return lambda current: self._known(patch(current), refusal)

    def _known(self, obj: Object, refusal: Callable[[str], StatusError]) -> Object:
        if self._message is None:
            return obj
        if problem := wrong_type(obj, self._message):
            raise refusal(problem)
        paths = unknown_fields(obj, self._message)
        if not paths:
            return obj
        problems = [f'unknown field "{path}"' for path in paths]
        if self._directive == "Strict":
            raise refusal(f"strict decoding error: {', '.join(problems)}")
        if self._directive == "Warn":
            for problem in problems:
                self._warn(problem)
        known: Object = without_unknown(obj, self._message)
        return known


def _directive(query: Mapping[str, str]) -> Directive:
    asked = query.get("fieldValidation") or "Warn"
    try:
        directive: Directive = msgspec.convert(asked, Directive)
    except msgspec.ValidationError:
        error = unsupported("fieldValidation", asked, get_args(Directive))
        raise Invalid("meta.k8s.io", "PatchOptions", "", [error]) from None
    return directive
