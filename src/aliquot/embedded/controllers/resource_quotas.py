"""ResourceQuotas: reports the usage in the status."""

from aliquot.apiserver.objects import Object, key_of
from aliquot.embedded.api.quotas import with_status
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import RESOURCE_QUOTAS


class ResourceQuotaController:
    collection = RESOURCE_QUOTAS.collection

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def sync(self, quota: Object) -> None:
        self._registry.rewrite(RESOURCE_QUOTAS, *key_of(quota), lambda obj: with_status(self._registry.store, obj))
