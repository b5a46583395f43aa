"""The admission policies of Aliquot, in Python.

This server does not evaluate CEL. It knows five ValidatingAdmissionPolicies by name and enforces them while they and
their bindings are stored. It reads tables, matched resources, parameters and actions from the stored objects, and
implements their expressions in Python. It stores any other policy but never evaluates it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import structlog

from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.apiserver.statuses import PolicyRefusal
from aliquot.apiserver.store import Store
from aliquot.embedded.api import policies, reach
from aliquot.embedded.api.identity import User, account, user
from aliquot.embedded.api.policies import PolicyRequest
from aliquot.embedded.api.resources import CONFIG_MAPS, POLICIES, POLICY_BINDINGS, WritableResource
from aliquot.errors import BadRecord
from aliquot.model.admission import AGENT_REACH, FENCING, FORGERY, PARAMETERS, SERVER_REACH

_log = structlog.get_logger()

RULES: Mapping[str, Callable[[PolicyRequest], str | None]] = {
    FENCING: policies.fencing,
    FORGERY: policies.forgery,
    PARAMETERS: policies.parameters,
    AGENT_REACH: reach.agent,
    SERVER_REACH: reach.server,
}


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A write that is about to be made."""

    operation: str
    resource: WritableResource
    part: str = ""
    new: Object | None = None
    old: Object | None = None

    @property
    def name(self) -> str:
        return text_at(self.new or self.old, "metadata", "name")

    @property
    def whole_resource(self) -> str:
        return f"{self.resource.plural}/{self.part}" if self.part else self.resource.plural


class Admission:
    """Checks a user's write against the policies. Raises PolicyRefusal."""

    def __init__(self, store: Store, user: User, warn: Callable[[str], None]) -> None:
        self._store = store
        self._user = user
        self._warn = warn

    @classmethod
    def of_controller(cls, store: Store, name: str) -> Self:
        """For a controller of kube-controller-manager, which is part of this server."""

        def warn(text: str) -> None:
            _log.warning("a policy warns", user=name, warning=text)

        return cls(store, user(account("kube-system", name)), warn)

    def __call__(self, change: AdmissionRequest) -> None:
        for name in RULES:
            policy = self._store.get(POLICIES.collection, ("", name))
            if policy is None or not _matches(policy.obj, change):
                continue
            for binding in self._bindings(name):
                self._enforce(policy.obj, binding, change)

    def _bindings(self, name: str) -> Iterator[Object]:
        for held in self._store.snapshot(POLICY_BINDINGS.collection):
            if text_at(held.obj, "spec", "policyName") == name:
                yield held.obj

    def _enforce(self, policy: Object, binding: Object, change: AdmissionRequest) -> None:
        name, bound_by = text_at(policy, "metadata", "name"), text_at(binding, "metadata", "name")
        reference = dig(binding, "spec", "paramRef") or {}
        parameters = self._parameters(reference) if dig(policy, "spec", "paramKind") else {}
        if parameters is None:
            if reference.get("parameterNotFoundAction") == "Allow":
                return
            why = "no params found for policy binding with `Deny` parameterNotFoundAction"
            raise _refusal(change, name, bound_by, f"failed to configure binding: {why}", "Invalid")
        asked = PolicyRequest(
            policy,
            reference,
            parameters,
            self._user.name,
            change.new,
            change.old,
            change.operation,
            change.whole_resource,
            self._user.node,
        )
        told = _why(asked, RULES[name])
        if told is None:
            return
        actions = dig(binding, "spec", "validationActions") or []
        if "Audit" in actions:
            _log.warning("a policy would refuse", policy=name, user=self._user.name, object=change.name, why=told)
        if "Warn" in actions:
            self._warn(f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{bound_by}': {told}")
        if "Deny" in actions:
            raise _refusal(change, name, bound_by, told, text_at(asked.validation, "reason") or "Invalid")

    def _parameters(self, reference: Object) -> Object | None:
        key = (text_at(reference, "namespace"), text_at(reference, "name"))
        held = self._store.get(CONFIG_MAPS.collection, key)
        return None if held is None else held.obj.get("data") or {}


def _why(asked: PolicyRequest, rule: Callable[[PolicyRequest], str | None]) -> str | None:
    """Why the rule refuses. A rule that cannot be read refuses, too."""
    try:
        return rule(asked)
    except BadRecord as error:
        return f"expression cannot be evaluated: {error}"


def _matches(policy: Object, change: AdmissionRequest) -> bool:
    rules = dig(policy, "spec", "matchConstraints", "resourceRules") or ()
    return any(_covers(rule, change) for rule in rules)


def _covers(rule: Object, change: AdmissionRequest) -> bool:
    names = {change.whole_resource, f"{change.resource.plural}/*" if change.part else change.resource.plural}
    is_meant = change.resource.group in rule["apiGroups"] and names & set(rule["resources"])
    return bool(is_meant) and bool({change.operation, "*"} & set(rule["operations"]))


def _refusal(change: AdmissionRequest, policy: str, binding: str, why: str, reason: str) -> PolicyRefusal:
    message = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}"
    return PolicyRefusal(change.resource.group, change.resource.plural, change.name, message, reason)
