"""The types of the fields that we read from roles and admission policies."""

import msgspec

from aliquot.embedded.api.shapes import Anything

_Names = list[str] | None


class _Shaped(msgspec.Struct, rename="camel", kw_only=True):
    pass


class Rule(_Shaped):
    verbs: _Names = None
    api_groups: _Names = None
    resources: _Names = None
    resource_names: _Names = None
    non_resource_urls: _Names = msgspec.field(default=None, name="nonResourceURLs")


class Role(Anything):
    rules: list[Rule] | None = None


class Subject(_Shaped):
    kind: str
    name: str
    namespace: str | None = None


class RoleReference(_Shaped):
    kind: str
    name: str


class RoleBinding(Anything, kw_only=True):
    subjects: list[Subject] | None = None
    role_ref: RoleReference


class Variable(_Shaped):
    name: str
    expression: str


class Validation(_Shaped):
    expression: str
    message: str | None = None
    reason: str | None = None


class ResourceRule(_Shaped):
    api_groups: list[str]
    operations: list[str]
    resources: list[str]


class MatchResources(_Shaped):
    resource_rules: list[ResourceRule] | None = None


class PolicySpec(_Shaped):
    match_constraints: MatchResources | None = None
    variables: list[Variable] | None = None
    validations: list[Validation] | None = None


class Policy(Anything, kw_only=True):
    spec: PolicySpec


class ParameterReference(_Shaped):
    name: str | None = None
    namespace: str | None = None
    parameter_not_found_action: str | None = None


class PolicyBindingSpec(_Shaped):
    policy_name: str
    validation_actions: list[str]
    param_ref: ParameterReference | None = None


class PolicyBinding(Anything, kw_only=True):
    spec: PolicyBindingSpec
