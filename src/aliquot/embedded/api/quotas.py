"""ResourceQuotas: limits on what the pods of a namespace request in total."""

from collections.abc import Iterable

import msgspec

from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.apiserver.statuses import Forbidden
from aliquot.apiserver.store import Store
from aliquot.embedded.api.resources import PODS, RESOURCE_QUOTAS
from aliquot.model import Pod
from aliquot.model.charge import peak
from aliquot.model.quantity import milli

_COUNTS = ("pods", "count/pods")
_MUST_SAY = ("cpu", "memory")
"""If a quota limits these, every container must set them."""
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi")


def refuse_beyond_quota(store: Store, pod: Object) -> None:
    """Raises Forbidden if a new pod exceeds a quota of its namespace."""
    name, namespace = text_at(pod, "metadata", "name"), text_at(pod, "metadata", "namespace")
    wanted = msgspec.convert(pod, Pod)
    for held in store.snapshot(RESOURCE_QUOTAS.collection):
        if text_at(held.obj, "metadata", "namespace") != namespace:
            continue
        hard, quota = dig(held.obj, "spec", "hard") or {}, held.obj["metadata"]["name"]
        if silent := _silent(wanted, hard):
            raise Forbidden("", PODS.plural, name, f"failed quota: {quota}: must specify {silent}")
        used = _used(store, namespace, hard)
        asked = {limited: amount for limited in sorted(used) if (amount := _of(wanted, limited))}
        over = [limited for limited, amount in asked.items() if used[limited] + amount > milli(hard[limited])]
        if over:
            told = (
                ("requested", {limited: _text(limited, asked[limited]) for limited in over}),
                ("used", {limited: _text(limited, used[limited]) for limited in over}),
                ("limited", {limited: hard[limited] for limited in over}),
            )
            listed = ", ".join(f"{word}: {_pairs(amounts)}" for word, amounts in told)
            raise Forbidden("", PODS.plural, name, f"exceeded quota: {quota}, {listed}")


def with_status(store: Store, quota: Object) -> Object:
    """The quota with its current usage."""
    hard = dig(quota, "spec", "hard") or {}
    used = _used(store, quota["metadata"]["namespace"], hard)
    texts = {limited: _text(limited, amount) for limited, amount in used.items()}
    return {**quota, "status": {"hard": hard, "used": texts}}


def _used(store: Store, namespace: str, hard: Iterable[str]) -> dict[str, int]:
    """The usage in thousandths: pods, and their requests and limits."""
    inside = (held.obj for held in store.snapshot(PODS.collection) if held.obj["metadata"]["namespace"] == namespace)
    pods = [msgspec.convert(obj, Pod) for obj in inside if dig(obj, "status", "phase") not in ("Succeeded", "Failed")]
    return {limited: sum(_of(pod, limited) for pod in pods) for limited in hard if _resource(limited)}


def _resource(limited: str) -> str:
    """What a quota entry counts in pods; empty if it counts something else."""
    if limited in (*_COUNTS, *_MUST_SAY):
        return limited
    side, _, resource = limited.partition(".")
    return resource if side in ("requests", "limits") else ""


def _of(pod: Pod, limited: str) -> int:
    if limited in _COUNTS:
        return 1000
    resource = _resource(limited)
    if limited.startswith("limits."):
        return peak((life, milli(str(own.limits.get(resource, 0)))) for own, life in pod.containers())
    return pod.requests(resource)


def _silent(pod: Pod, hard: Iterable[str]) -> str:
    """The containers that lack a required amount, in the format of Kubernetes."""
    silent = {}
    for limited in sorted(hard):
        resource = _resource(limited)
        if resource in _MUST_SAY:
            is_limit = limited.startswith("limits.")
            names = [
                own.name for own, _ in pod.containers() if resource not in (own.limits if is_limit else own.requests)
            ]
            if names:
                silent[limited] = ",".join(names)
    return "; ".join(f"{limited} for: {names}" for limited, names in silent.items())


def _pairs(amounts: dict[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in amounts.items())


def _text(limited: str, thousandths: int) -> str:
    whole, rest = divmod(thousandths, 1000)
    if rest:
        return f"{thousandths}m"
    suffix = ""
    if _resource(limited) == "memory":
        for larger in _BINARY:
            if not whole or whole % 1024:
                break
            whole, suffix = whole // 1024, larger
    return f"{whole}{suffix}"
