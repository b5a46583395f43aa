"""Quotas in gpu-admission's format: JSON in a ConfigMap, watched while we run."""

import structlog

from aliquot import metrics
from aliquot.clock import Clock
from aliquot.config.sections.placement import QuotaSection
from aliquot.control.inputs.optional import OptionalInformer
from aliquot.control.leadership.rights import read_maps
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import QuotasRead
from aliquot.kube import CONFIG_MAPS, Client, ConfigMap

_log = structlog.get_logger()


class QuotaMap:
    """No ConfigMap means no quotas. An unreadable ConfigMap keeps the last valid quotas, and is reported."""

    def __init__(self, client: Client, cluster: ClusterState, clock: Clock, settings: QuotaSection) -> None:
        self._cluster = cluster
        self._name = f"{settings.namespace}/{settings.name}"
        self._key = settings.key
        self._trouble = ""
        right = read_maps(settings.namespace, settings.name, "no quota is in force")
        self._maps: OptionalInformer[ConfigMap] = OptionalInformer(client, CONFIG_MAPS, self._on_map, right, clock)
        self.informer = self._maps.informer
        self.run = self._maps.run
        self.tried = self._maps.tried
        metrics.QUOTA_VALID.set(1)

    def notes(self) -> list[str]:
        """Why the quotas may not be as intended."""
        return self._maps.notes() + ([self._trouble] if self._trouble else [])

    def _on_map(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        text = (new.data or {}).get(self._key) if new is not None else None
        if new is not None and text is None:
            self._report(f"there is no key {self._key}; the previous quotas stay in force")
            return
        self._cluster.apply(QuotasRead(text))
        self._report(self._cluster.quotas.trouble)

    def _report(self, why: str) -> None:
        trouble = f"the quotas in ConfigMap {self._name} cannot be used: {why}" if why else ""
        if trouble and trouble != self._trouble:
            _log.error("cannot use the quotas", config_map=self._name, why=why)
        elif not trouble:
            _log.info("quotas are in force", config_map=self._name, namespaces=len(self._cluster.quotas.entries))
        self._trouble = trouble
        metrics.QUOTA_VALID.set(not trouble)
