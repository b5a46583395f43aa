"""Kubernetes objects as plain dictionaries. A stored object is never changed in place: a change builds a new one."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from aliquot.clock import rfc3339

Object: TypeAlias = dict[str, Any]
Now: TypeAlias = Callable[[], datetime]
Key: TypeAlias = tuple[str, str]
"""Namespace ("" for cluster-scoped objects) and name."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> datetime:
    return datetime.now(UTC)


def timestamp(moment: datetime, fraction: bool = False) -> str:
    """A timestamp in the format of `metav1.Time` or, with a fraction, `metav1.MicroTime`."""
    return rfc3339((moment - _EPOCH) // timedelta(microseconds=1) * 1000, fraction)


def moment_of(text: str) -> datetime | None:
    """The time of a timestamp; None if it is invalid or has no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def dig(obj: object, *path: str) -> Any:
    """The value at a path of keys; None if a step is missing."""
    for step in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(step)
    return obj


def text_at(obj: object, *path: str) -> str:
    value = dig(obj, *path)
    return value if isinstance(value, str) else ""


def key_of(obj: Object) -> Key:
    return text_at(obj, "metadata", "namespace"), text_at(obj, "metadata", "name")


def with_metadata(obj: Object, **changes: object) -> Object:
    """The object with these metadata fields set. None removes a field."""
    metadata = {**obj.get("metadata", {}), **changes}
    return {**obj, "metadata": {name: value for name, value in metadata.items() if value is not None}}


def without_nulls(value: Any) -> Any:
    """The object without explicit nulls, which Kubernetes reads as missing fields."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value


def with_condition(conditions: list[Object] | None, condition: Object) -> list[Object]:
    """The conditions with this one added, replacing one of the same type."""
    kept = list(conditions or [])
    for position, present in enumerate(kept):
        if present.get("type") == condition["type"]:
            kept[position] = condition
            return kept
    return [*kept, condition]
