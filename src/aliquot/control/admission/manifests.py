"""The policies as applied: their objects and bindings."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from aliquot.control.admission import fencing, forgery, parameters, reach
from aliquot.dialects import Dialects
from aliquot.model.admission import (
    AGENT_ACCOUNT,
    AGENT_REACH,
    EPOCH_MAP,
    FENCING,
    FORGERY,
    PARAMETERS,
    SERVER_ACCOUNT,
    SERVER_REACH,
    WRITERS_MAP,
)
from aliquot.model.installed_names import SERVER_NAMESPACE

Manifest: TypeAlias = dict[str, Any]

NAMESPACE = SERVER_NAMESPACE
ACTIONS: Mapping[str, Sequence[str]] = {"Warn,Audit": ("Warn", "Audit"), "Deny": ("Deny",)}
"""What the API server does with a forged key, by value of the command's option."""

_GROUP = "admissionregistration.k8s.io/v1"
_LABELS = {"app.kubernetes.io/part-of": "aliquot"}


def manifests(
    dialects: Dialects, namespace: str = NAMESPACE, forgery_actions: Sequence[str] = ACTIONS["Warn,Audit"]
) -> list[Manifest]:
    """Every object to apply, in order: a policy does nothing without its binding.

    A missing ConfigMap lets everything pass. The API server looks it up before it looks at the change, so the
    alternative would refuse every change of every pod in the cluster, including kubelet's. A policy protects both
    ConfigMaps from deletion.
    """
    return [
        _policy(PARAMETERS, parameters.spec(namespace)),
        _policy(FENCING, fencing.spec()),
        _policy(FORGERY, forgery.spec(dialects, namespace)),
        _policy(AGENT_REACH, reach.agent_spec(dialects, _account(namespace, AGENT_ACCOUNT))),
        _policy(SERVER_REACH, reach.server_spec(dialects, _account(namespace, SERVER_ACCOUNT))),
        _binding(PARAMETERS, ("Deny",)),
        _binding(AGENT_REACH, ("Deny",)),
        _binding(SERVER_REACH, ("Deny",)),
        _binding(FENCING, ("Deny",), _reference(EPOCH_MAP, namespace)),
        _binding(FORGERY, forgery_actions, _reference(WRITERS_MAP, namespace)),
    ]


def _account(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def _policy(name: str, spec: Manifest) -> Manifest:
    metadata = {"name": name, "labels": dict(_LABELS)}
    whole = {"failurePolicy": "Fail", **spec}
    return {"apiVersion": _GROUP, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": whole}


def _binding(name: str, actions: Sequence[str], reference: Manifest | None = None) -> Manifest:
    spec: Manifest = {"policyName": name, "validationActions": list(actions)}
    if reference:
        spec["paramRef"] = reference
    metadata = {"name": name, "labels": dict(_LABELS)}
    return {"apiVersion": _GROUP, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": spec}


def _reference(name: str, namespace: str) -> Manifest:
    return {"name": name, "namespace": namespace, "parameterNotFoundAction": "Allow"}
