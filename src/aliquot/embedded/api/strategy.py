"""What is particular to one resource when it is created, updated and deleted: a handful of pure functions."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from aliquot.embedded.api import shapes
from aliquot.embedded.api.objects import Object
from aliquot.embedded.api.statuses import FieldError


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
    """The defaults suit a resource without rules of its own."""

    shape: type[msgspec.Struct] = shapes.Anything
    on_create: Callable[[Object], Object] = _unchanged
    """What only a new object gets, such as its first status."""
    defaults: Callable[[Object], Object] = _unchanged
    """What every write fills in."""
    errors: Callable[[Object], list[FieldError]] = _no_errors
    update_errors: Callable[[Object, Object], list[FieldError]] = _no_update_errors
    """(stored, proposed): changes that are not allowed."""
    grace: Callable[[Object, int | None], int] = _at_once
    """(object, seconds asked for): how long its deletion takes; 0 is at once."""
    counts_generations: bool = False
    needs_revision: bool = False
    """An update must name the resourceVersion that it is based on."""
    created_by_update: bool = False
    """PUT of one that does not exist creates it."""
    returned_when_deleted: bool = False
    """DELETE answers the object and not only `Status`."""


PLAIN = Strategy()
