"""The resources of containers: amounts that must be quantities, and the stricter rules of extended resources."""

import re
from fractions import Fraction

from aliquot.apiserver.objects import Object
from aliquot.apiserver.statuses import BadRequest, FieldError, invalid, required
from aliquot.errors import BadQuantity
from aliquot.model import quantity

_QUANTITY = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_BEYOND = re.compile(r"[0-9]+([eE][0-9]+)?", re.ASCII)
_STANDARD = ("cpu", "memory", "ephemeral-storage")


def is_extended(name: str) -> bool:
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def canonical_resources(resources: Object) -> Object:
    """Amounts as strings. A resource with a limit and no request gets the limit as its request."""
    limits = {name: str(amount) for name, amount in (resources.get("limits") or {}).items()}
    requests = {name: str(amount) for name, amount in (resources.get("requests") or {}).items()}
    filled = dict(resources)
    if limits:
        filled["limits"] = limits
    if limits or requests:
        filled["requests"] = {**limits, **requests}
    return filled


def resource_errors(path: str, resources: Object) -> list[FieldError]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    found = [*amount_errors(f"{path}.limits", limits), *amount_errors(f"{path}.requests", requests)]
    if found:
        return found
    for name, amount in requests.items():
        found += _request_errors(f"{path}.requests", name, amount, limits.get(name))
    return found


def amount_errors(path: str, amounts: dict[str, str]) -> list[FieldError]:
    """Errors of a map from resource name to quantity, as containers and nodes have them."""
    found = []
    for name, amount in amounts.items():
        found += _name_errors(path, name)
        found += _amount_errors(f"{path}[{name}]", name, str(amount))
    return found


def limit_errors(path: str, amounts: dict[str, str]) -> list[FieldError]:
    """The same for a quota, whose names are more than resource names."""
    return [error for name, amount in amounts.items() for error in _amount_errors(f"{path}[{name}]", "", amount)]


def _name_errors(path: str, name: str) -> list[FieldError]:
    known = "/" in name or name in (*_STANDARD, "pods", "storage") or name.startswith("hugepages-")
    return [] if known else [invalid(f"{path}[{name}]", name, "must be a standard resource or <domain>/<name>")]


def _amount_errors(field: str, name: str, amount: str) -> list[FieldError]:
    exact = _exact(amount)
    if exact < 0:
        return [invalid(field, amount, "must be greater than or equal to 0")]
    if is_extended(name) and exact.denominator != 1:
        return [invalid(field, amount, "must be an integer")]
    return []


def _exact(amount: str) -> Fraction:
    """The value of a quantity, capped beyond any machine's size. Raises BadRequest if it is not a quantity."""
    try:
        return quantity.parse(amount)
    except BadQuantity:
        if _BEYOND.fullmatch(amount) is None:
            raise BadRequest(f"quantities must match the regular expression '{_QUANTITY}'") from None
        return Fraction(2**63 - 1)


def _request_errors(path: str, name: str, amount: str, limit: str | None) -> list[FieldError]:
    field = f"{path}[{name}]"
    if limit is None:
        if is_extended(name):
            return [required(field, "Limit must be set for non overcommitable resources")]
        return []
    asked, allowed = _exact(amount), _exact(limit)
    if is_extended(name) and asked != allowed:
        return [invalid(field, amount, f"must be equal to {name} limit of {limit}")]
    if asked > allowed:
        return [invalid(field, amount, f"must be less than or equal to {name} limit of {limit}")]
    return []


def quality_of_service(pod: Object) -> str:
    """The QoS class, from the CPU and memory of the containers."""
    spec = pod.get("spec", {})
    containers = [*spec.get("initContainers", []), *spec.get("containers", [])]
    asked = [_counted(container, "requests") for container in containers]
    limited = [_counted(container, "limits") for container in containers]
    if not any(asked) and not any(limited):
        return "BestEffort"
    guaranteed = asked == limited and all(len(amounts) == 2 for amounts in limited)
    return "Guaranteed" if guaranteed else "Burstable"


def _counted(container: Object, side: str) -> dict[str, Fraction]:
    amounts = container.get("resources", {}).get(side, {})
    counted = {name: _exact(amounts[name]) for name in ("cpu", "memory") if name in amounts}
    return {name: amount for name, amount in counted.items() if amount}
