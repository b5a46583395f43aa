"""Label selectors in the specs of objects."""

from collections.abc import Mapping

import msgspec


class Requirement(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None

    def holds(self, labels: Mapping[str, str]) -> bool:
        """A requirement that the API server would refuse matches nothing."""
        values = self.values or []
        match self.operator:
            case "In":
                return labels.get(self.key) in values
            case "NotIn":
                return bool(values) and labels.get(self.key) not in values
            case "Exists":
                return not values and self.key in labels
            case "DoesNotExist":
                return not values and self.key not in labels
        return False


class LabelSelector(msgspec.Struct, rename="camel", frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.match_labels or self.match_expressions)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """An empty selector matches everything, unless the kind defines it otherwise."""
        equal = all(labels.get(key) == value for key, value in (self.match_labels or {}).items())
        return equal and all(requirement.holds(labels) for requirement in self.match_expressions or ())
