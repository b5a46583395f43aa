"""The expressions of Aliquot's admission policies in Python. Each rule returns why it refuses a write, or None."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from aliquot.apiserver.objects import Object, dig, key_of, text_at
from aliquot.errors import BadRecord
from aliquot.model.admission import EPOCH_KEY, OUR_LIST
from aliquot.model.records import EPOCH

_Table: TypeAlias = Mapping[str, Sequence[str]]
_read = lru_cache(maxsize=16)(json.loads)


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    policy: Object
    reference: Object
    """The reference to the parameters."""
    parameters: Mapping[str, str]
    user: str
    new: Object | None
    old: Object | None
    operation: str = ""
    what: str = ""
    """The resource with the subresource that is written."""
    node: str = ""
    """The node that the user's token is bound to."""

    def table(self, name: str) -> Any:
        """A policy variable that holds JSON. Raises BadRecord."""
        variables = self.policy["spec"].get("variables") or ()
        expression = next((held["expression"] for held in variables if held["name"] == name), "")
        try:
            return _read(expression)
        except ValueError as error:
            raise BadRecord(f"variable {name} is not as Aliquot writes it: {error}") from error

    @property
    def validation(self) -> Object:
        found: Sequence[Object] = self.policy["spec"].get("validations") or ({},)
        return found[0]

    @property
    def message(self) -> str:
        return text_at(self.validation, "message")

    @property
    def is_of_account(self) -> bool:
        """Whether the policy applies to this user."""
        (condition,) = self.policy["spec"].get("matchConditions") or ({},)
        return text_at(condition, "expression").endswith(f"== {json.dumps(self.user)}")

    def changed(self, field: str) -> list[str]:
        """The keys of a metadata map that were added, changed or removed."""
        new, old = _map(self.new, field), _map(self.old, field)
        return [*(key for key in new if old.get(key) != new[key]), *(key for key in old if key not in new)]


def fencing(asked: PolicyRequest) -> str | None:
    if not set(asked.changed("annotations")) & set(asked.table("keys")):
        return None
    term, written = asked.parameters.get(EPOCH_KEY, ""), _map(asked.new, "annotations").get(EPOCH, "")
    if term and written == term:
        return None
    return f"epoch '{written}' is not that of the current term, '{term}'"


def forgery(asked: PolicyRequest) -> str | None:
    changed = dict.fromkeys([*asked.changed("annotations"), *asked.changed("labels")])
    if not changed:
        return None
    trusted = set(_trusted(asked))
    forged = [] if OUR_LIST in trusted else [key for key in changed if _is_closed(asked, key, trusted)]
    if not forged:
        return None
    more = f" and {len(forged) - 1} more" if len(forged) > 1 else ""
    place = f"{text_at(asked.reference, 'namespace')}/{text_at(asked.reference, 'name')}"
    advice = f"leave it out, or list the account in ConfigMap {place}"
    return f"{asked.user} may not write {forged[0]}{more}: {asked.message}; {advice}"


def parameters(asked: PolicyRequest) -> str | None:
    return asked.message if "/".join(key_of(asked.old or {})) in asked.table("read") else None


def _is_closed(asked: PolicyRequest, key: str, trusted: set[str]) -> bool:
    """Whether a key is guarded on this object and the user may not write it."""
    if key in asked.table("ours"):
        return True
    guarded: list[_Table] = [asked.table("placement")]
    if text_at(asked.old, "spec", "nodeName"):
        guarded.append(asked.table("sizes"))
    theirs = [names for table in guarded for pattern, names in table.items() if is_like(pattern, key)]
    spoken = _spoken(asked) if theirs else set()
    return any(spoken & set(names) and not spoken & set(names) & trusted for names in theirs)


def _trusted(asked: PolicyRequest) -> Iterator[str]:
    """The lists that name the user."""
    for name in asked.table("lists"):
        lines = asked.parameters.get(name, "").replace(",", "\n").split("\n")
        if any(line.strip() == asked.user for line in lines):
            yield name


def _spoken(asked: PolicyRequest) -> set[str]:
    """The dialects whose resources the pod requests. A Binding does not say, so it could be any of them."""
    if text_at(asked.new, "kind") == "Binding":
        return set(asked.table("lists"))
    spec = (asked.new or {}).get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    names = {
        name
        for container in containers
        for side in ("limits", "requests")
        for name in dig(container, "resources", side) or ()
    }
    resources: _Table = asked.table("resources")
    return {
        dialect
        for pattern, dialects in resources.items()
        if any(is_like(pattern, name) for name in names)
        for dialect in dialects
    }


def is_like(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _map(obj: Object | None, field: str) -> Mapping[str, str]:
    return dig(obj, "metadata", field) or {}
