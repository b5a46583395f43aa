"""`meta.k8s.io/v1 Table`: what `kubectl get` prints."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aliquot.apiserver.ages import age
from aliquot.apiserver.objects import Object, text_at
from aliquot.apiserver.statuses import BadRequest

Cells = list[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; with `wide`, only `-o wide` shows it."""

    name: str
    description: str = ""
    wide: bool = False
    type: str = "string"

    def definition(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": "name" if self.name == "Name" else "",
            "description": self.description,
            "priority": int(self.wide),
        }


def _no_conditions(_obj: Object) -> list[Object]:
    return []


@dataclass(frozen=True, slots=True)
class TableFormat:
    """The columns of a resource, and a function from object and time to cells."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, datetime], Cells]
    conditions: Callable[[Object], list[Object]] = _no_conditions


NAME = Column("Name", "The object's name.")
AGE = Column("Age", "How long ago the object was created.")


def name_of(obj: Object) -> str:
    return text_at(obj, "metadata", "name")


def age_of(obj: Object, at: datetime) -> str:
    return age(text_at(obj, "metadata", "creationTimestamp"), at)


GENERIC = TableFormat((NAME, AGE), lambda obj, at: [name_of(obj), age_of(obj, at)])


def table(form: TableFormat, metadata: Object) -> Object:
    """A Table without its rows."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in form.columns],
    }


def row(form: TableFormat, obj: Object, at: datetime, include: str) -> Object:
    made = {"cells": form.cells(obj, at), "object": _included(obj, include)}
    conditions = form.conditions(obj)
    return {**made, "conditions": conditions} if conditions else made


def _included(obj: Object, include: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    check_include(include)
    return partial_metadata(obj)


def check_include(include: str) -> None:
    """Raises BadRequest."""
    if include not in ("", "None", "Metadata", "Object"):
        raise BadRequest(f"unrecognized includeObject value: {include!r}")


PARTIAL: Object = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}


def partial_metadata(obj: Object) -> Object:
    return {**PARTIAL, "metadata": obj.get("metadata", {})}
