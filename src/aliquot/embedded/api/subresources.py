"""The subresources of pods that act: binding, eviction, log, and those that need a process."""

from collections.abc import Mapping
from typing import NoReturn

from aliquot.apiserver.lists import number
from aliquot.apiserver.objects import Object, dig, text_at, timestamp, with_condition, with_metadata, without_nulls
from aliquot.apiserver.statuses import (
    BadRequest,
    Conflict,
    Invalid,
    NotImplementedHere,
    Unexplained,
    required,
    unsupported,
)
from aliquot.embedded.api import shapes
from aliquot.embedded.api.admission import AdmissionRequest
from aliquot.embedded.api.creation import refuse_other_uid
from aliquot.embedded.api.deletion import DeleteRequest, Propagation
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import BINDINGS, PODS
from aliquot.embedded.api.updates import STALE

CREATED: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
NO_LOGS = "Pods of the embedded cluster run no processes, so they have no logs.\n"
_NO_PROCESS = "pods of the embedded cluster run no processes: use `kubectl logs` to see what a container would find"


def bind(registry: Registry, namespace: str, name: str | None, body: Object, *, dry_run: bool = False) -> Object:
    """Puts the pod on a node, with the Binding's labels and annotations, in one write. Raises StatusError.

    `name` is the pod in the URL, None for the namespaced `bindings` resource.
    """
    _refuse_other_kind(body, "Binding", "v1")
    body = without_nulls(body)
    shapes.check(body, shapes.Binding, "Binding")
    named = _refuse_other_name(body, namespace, name)
    _refuse_bad_target(body)
    through, part = (BINDINGS, "") if name is None else (PODS, "binding")
    seen = with_metadata({**body, "kind": BINDINGS.kind}, name=named, namespace=namespace)
    registry.admit(AdmissionRequest("CREATE", through, part, new=seen))
    registry.rewrite(PODS, namespace, named, lambda pod: _bound(registry, pod, body), dry_run=dry_run)
    return CREATED


def evict(registry: Registry, namespace: str, name: str, body: Object, *, dry_run: bool = False) -> Object:
    """Delete the pod with its grace period. Disruption budgets are ignored: nobody counts their pods here.

    Raises StatusError.
    """
    _refuse_other_kind(body, "Eviction", "policy/v1", "policy/v1beta1")
    eviction = shapes.read(without_nulls(body), shapes.Eviction, "Eviction")
    _refuse_other_name(body, namespace, name)
    asked = eviction.delete_options or shapes.DeleteOptions()
    request = delete_request(asked, dry_run)
    registry.delete(PODS, namespace, name, request)
    return CREATED


def refuse_to_enter(action: str) -> NoReturn:
    """`kubectl exec`, `attach` and `port-forward`. Raises NotImplementedHere."""
    raise NotImplementedHere(f"{action} is not possible: {_NO_PROCESS}")


def log_part(text: str, query: Mapping[str, str]) -> str:
    """The requested end of a log. Raises BadRequest."""
    lines = text.splitlines(keepends=True)
    if "tailLines" in query:
        wanted = number(query, "tailLines")
        lines = lines[-wanted:] if wanted else []
    shown = "".join(lines)
    return shown.encode()[: number(query, "limitBytes")].decode(errors="ignore") if "limitBytes" in query else shown


def delete_request(options: shapes.DeleteOptions, dry_run: bool) -> DeleteRequest:
    conditions = options.preconditions or shapes.Preconditions()
    return DeleteRequest(
        grace_seconds=options.grace_period_seconds,
        uid=conditions.uid or "",
        resource_version=conditions.resource_version or "",
        dry_run=dry_run or bool(options.dry_run),
        propagation=_propagation(options),
    )


def _propagation(options: shapes.DeleteOptions) -> Propagation:
    if options.propagation_policy is None:
        return Propagation.ORPHAN if options.orphan_dependents else Propagation.BACKGROUND
    try:
        return Propagation(options.propagation_policy)
    except ValueError:
        error = unsupported("propagationPolicy", options.propagation_policy, tuple(Propagation))
        raise Invalid("meta.k8s.io", "DeleteOptions", "", [error]) from None


def _refuse_other_kind(body: Object, kind: str, *versions: str) -> None:
    if body.get("kind", kind) != kind or body.get("apiVersion", versions[0]) not in versions:
        raise BadRequest(f"the object provided is not a {kind} of {' or '.join(versions)}")


def _refuse_other_name(body: Object, namespace: str, name: str | None) -> str:
    named = text_at(body, "metadata", "name")
    if name is not None and named and named != name:
        raise BadRequest(f"name in URL does not match name in {body.get('kind', 'the')} object")
    if text_at(body, "metadata", "namespace") not in ("", namespace):
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    return named or name or ""


def _refuse_bad_target(body: Object) -> None:
    target = body.get("target", {})
    errors = []
    if target.get("kind", "Node") not in ("", "Node"):
        errors.append(unsupported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        errors.append(required("target.name"))
    if errors:
        raise Unexplained(", ".join(map(str, errors)))


def _bound(registry: Registry, pod: Object, binding: Object) -> Object:
    refuse_other_uid(PODS, pod, text_at(binding, "metadata", "uid"))
    _refuse_unbindable(pod, text_at(binding, "metadata", "resourceVersion"))
    status = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": timestamp(registry.clock()),
    }
    status["conditions"] = with_condition(status.get("conditions"), scheduled)
    placed = {**pod, "spec": {**pod["spec"], "nodeName": binding["target"]["name"]}, "status": status}
    return with_metadata(
        placed,
        annotations=_joined(pod, binding, "annotations"),
        labels=_joined(pod, binding, "labels"),
    )


def _joined(pod: Object, binding: Object, field: str) -> dict[str, str] | None:
    merged = {**(dig(pod, "metadata", field) or {}), **(dig(binding, "metadata", field) or {})}
    return merged or None


def _refuse_unbindable(pod: Object, resource_version: str) -> None:
    name, node = text_at(pod, "metadata", "name"), text_at(pod, "spec", "nodeName")
    if resource_version not in ("", text_at(pod, "metadata", "resourceVersion")):
        raise Conflict("", "pods", name, STALE)
    if "deletionTimestamp" in pod["metadata"]:
        raise _unbindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node:
        raise _unbindable(name, f'pod {name} is already assigned to node "{node}"')
    if dig(pod, "spec", "schedulingGates"):
        raise _unbindable(name, f"pod {name} has non-empty .spec.schedulingGates")


def _unbindable(name: str, why: str) -> Conflict:
    return Conflict("", "pods/binding", name, why)
