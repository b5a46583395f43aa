"""Namespaces that a policy keeps from going: what is left in them is tried again and again."""

from aliquot.embedded.api.objects import Object, text_at
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
