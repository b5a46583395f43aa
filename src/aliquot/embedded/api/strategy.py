"""The rules of one resource for create, update and delete, as pure functions."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from aliquot.apiserver.objects import Object
from aliquot.apiserver.statuses import FieldError
from aliquot.embedded.api import shapes


def _unchanged(obj: Object) -> Object:
    return obj


def _no_errors(_obj: Object) -> list[FieldError]:
    return []


def _no_update_errors(_old: Object, _new: Object) -> list[FieldError]:
    return []


def _at_once(_obj: Object, _asked: int | None) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Strategy:
    """The rules of a resource. The defaults suit a resource without special rules."""

    shape: type[msgspec.Struct] = shapes.Anything
    on_create: Callable[[Object], Object] = _unchanged
    """Adds what only a new object gets, such as its first status."""
    defaults: Callable[[Object], Object] = _unchanged
    """Fills in defaults at every write."""
    errors: Callable[[Object], list[FieldError]] = _no_errors
    update_errors: Callable[[Object, Object], list[FieldError]] = _no_update_errors
    """(stored, proposed): the errors of forbidden changes."""
    grace: Callable[[Object, int | None], int] = _at_once
    """(object, requested seconds): the grace period of a deletion."""
    counts_generations: bool = False
    needs_revision: bool = False
    """Whether an update must have a resourceVersion."""
    created_by_update: bool = False
    """Whether PUT creates a missing object."""
    returned_when_deleted: bool = False
    """Whether DELETE returns the object instead of a `Status`."""


PLAIN = Strategy()
