"""The scale subresource of workloads."""

from aliquot.apiserver.eventlog import Stored
from aliquot.apiserver.objects import Object, dig, without_nulls
from aliquot.apiserver.statuses import BadRequest
from aliquot.embedded.api import shapes
from aliquot.embedded.api.patches import Patch
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.routes import Target
from aliquot.embedded.api.workload_tables import selector_text

_API_VERSION, _KIND = "autoscaling/v1", "Scale"


def scale_of(obj: Object) -> Object:
    metadata = obj["metadata"]
    shown = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")}
    selector = dig(obj, "spec", "selector") or {}
    return {
        "kind": _KIND,
        "apiVersion": _API_VERSION,
        "metadata": shown,
        "spec": {"replicas": dig(obj, "spec", "replicas") or 0},
        "status": {"replicas": dig(obj, "status", "replicas") or 0, "selector": selector_text(selector)},
    }


def change(registry: Registry, target: Target, patch: Patch, *, dry_run: bool) -> Stored:
    """Replace or patch the scale, and store the workload with its new replicas. Raises StatusError."""

    def scaled(obj: Object) -> Object:
        wanted = without_nulls(patch(scale_of(obj)))
        if (wanted.get("apiVersion", _API_VERSION), wanted.get("kind", _KIND)) != (_API_VERSION, _KIND):
            raise BadRequest(f"the object provided is not a {_KIND} of {_API_VERSION}")
        read = shapes.read(wanted, shapes.Scale, _KIND)
        replicas = read.spec.replicas if read.spec is not None else None
        version = dig(wanted, "metadata", "resourceVersion")
        changed = {**obj, "spec": {**obj["spec"], "replicas": replicas or 0}}
        return {**changed, "metadata": {**obj["metadata"], "resourceVersion": version}}

    return registry.patch(target.resource, target.namespace, target.name, scaled, part="scale", dry_run=dry_run)
