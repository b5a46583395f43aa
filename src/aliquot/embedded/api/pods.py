"""The API server's rules for pods: defaults, validation, allowed updates, grace period."""

from collections.abc import Iterator
from typing import Any

from aliquot.apiserver.objects import Object, dig
from aliquot.apiserver.statuses import FieldError, duplicate, forbidden, invalid, required, unsupported
from aliquot.embedded.api import shapes
from aliquot.embedded.api.pod_resources import canonical_resources, quality_of_service, resource_errors
from aliquot.embedded.api.strategy import Strategy
from aliquot.embedded.api.validation import is_label_name

GRACE_SECONDS = 30

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_SPEC_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": GRACE_SECONDS,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
_CONTAINER_DEFAULTS: Object = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_CHANGEABLE = "`spec.containers[*].image`, `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, \
`spec.tolerations` (only additions to existing tolerations), `spec.schedulingGates` (only removals)"
_FREE_FIELDS = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def _with_defaults(pod: Object) -> Object:
    spec = pod.get("spec", {})
    filled = {**_SPEC_DEFAULTS, **spec}
    if filled["terminationGracePeriodSeconds"] < 0:
        filled["terminationGracePeriodSeconds"] = 1
    for listed in ("containers", "initContainers"):
        if listed in spec:
            filled[listed] = [_container_with_defaults(container) for container in spec[listed]]
    return {**pod, "spec": filled}


def _container_with_defaults(container: Object) -> Object:
    image = container.get("image", "")
    floating = image.endswith(":latest") or (":" not in image.rpartition("/")[2] and "@" not in image)
    pull = {"imagePullPolicy": "Always" if floating else "IfNotPresent"}
    filled = {**_CONTAINER_DEFAULTS, **pull, **container}
    return {**filled, "resources": canonical_resources(filled["resources"])}


def _as_new(pod: Object) -> Object:
    return {**pod, "status": {"phase": "Pending", "qosClass": quality_of_service(pod)}}


def _errors(pod: Object) -> list[FieldError]:
    spec = pod.get("spec", {})
    found = [] if spec.get("containers") else [required("spec.containers")]
    found += _container_errors(spec)
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        found.append(unsupported("spec.restartPolicy", spec.get("restartPolicy", ""), _RESTART_POLICIES))
    return found


def _containers(spec: Object) -> Iterator[tuple[str, Object]]:
    for listed in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(listed, [])):
            yield f"spec.{listed}[{position}]", container


def _container_errors(spec: Object) -> list[FieldError]:
    found, seen = [], set()
    for path, container in _containers(spec):
        name = container.get("name", "")
        found += _name_errors(f"{path}.name", name)
        if name in seen:
            found.append(duplicate(f"{path}.name", name))
        seen.add(name)
        if not container.get("image"):
            found.append(required(f"{path}.image"))
        found += resource_errors(f"{path}.resources", container.get("resources", {}))
    return found


def _name_errors(path: str, name: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    return [] if is_label_name(name) else [invalid(path, name, "must be a lowercase RFC 1123 label")]


def _update_errors(old: Object, new: Object) -> list[FieldError]:
    before, after = old.get("spec", {}), new.get("spec", {})
    for listed in ("containers", "initContainers"):
        if len(before.get(listed, [])) != len(after.get(listed, [])):
            return [forbidden(f"spec.{listed}", "pod updates may not add or remove containers")]
    found = []
    if _frozen_part(before) != _frozen_part(after):
        found.append(forbidden("spec", f"pod updates may not change fields other than {_CHANGEABLE}"))
    if not _holds_all(after.get("tolerations", []), before.get("tolerations", [])):
        found.append(forbidden("spec.tolerations", "existing tolerations may not be changed or removed"))
    for position, gate in enumerate(after.get("schedulingGates", [])):
        if gate not in before.get("schedulingGates", []):
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            found.append(forbidden(f"spec.schedulingGates[{position}].name", why))
    return found


def _frozen_part(spec: Object) -> Object:
    frozen: dict[str, Any] = {name: value for name, value in spec.items() if name not in _FREE_FIELDS}
    for listed in ("containers", "initContainers"):
        frozen[listed] = [{**container, "image": ""} for container in spec.get(listed, [])]
    return frozen


def _holds_all(larger: list[Object], smaller: list[Object]) -> bool:
    return all(item in larger for item in smaller)


def _grace(pod: Object, asked: int | None) -> int:
    """The grace period. A pod without a node, or one that has ended, goes at once."""
    if not dig(pod, "spec", "nodeName") or dig(pod, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    period = dig(pod, "spec", "terminationGracePeriodSeconds") if asked is None else asked
    return max(1, period) if period else 0


STRATEGY = Strategy(
    shape=shapes.Pod,
    on_create=_as_new,
    defaults=_with_defaults,
    errors=_errors,
    update_errors=_update_errors,
    grace=_grace,
    counts_generations=True,
    returned_when_deleted=True,
)
