"""Retries to delete the content of terminating namespaces that a policy has kept."""

from aliquot.apiserver.objects import Object, text_at
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import NAMESPACES


class NamespaceController:
    collection = NAMESPACES.collection

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def sync(self, namespace: Object) -> float | None:
        """Raises PolicyRefusal."""
        if "deletionTimestamp" in namespace["metadata"]:
            self._registry.empty_namespace(text_at(namespace, "metadata", "name"))
        return None
