"""Which certificates the API server trusts, followed live in the ConfigMap that it publishes for aggregated APIs."""

from dataclasses import dataclass, field

import structlog

from aliquot.clock import Clock
from aliquot.control.inputs.optional import OptionalInformer
from aliquot.control.leadership.rights import read_maps
from aliquot.endpoints.client_certificates import Authorities
from aliquot.endpoints.front_proxy import FrontProxies, authorities_of
from aliquot.kube import CONFIG_MAPS, Client, ConfigMap
from aliquot.signals import Signal

_log = structlog.get_logger()

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
_WITHOUT = (
    "the query API knows neither the API server nor client certificates, and answers only tokens; bind the Role "
    f"{NAME}-reader in {NAMESPACE}"
)
_ABSENT = f"there is no ConfigMap {NAMESPACE}/{NAME}: {_WITHOUT}"


@dataclass(frozen=True)
class Trust:
    clients: Authorities = field(default_factory=Authorities)
    front_proxies: FrontProxies = field(default_factory=FrontProxies)

    def pem(self) -> str:
        """All CAs whose certificates a handshake may accept."""
        return self.clients.pem() + self.front_proxies.authorities.pem()


class ClusterTrust:
    """`run` follows the ConfigMap. Without it, no certificate is trusted. Unreadable settings change nothing."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.current = Trust()
        self.changed: Signal[None] = Signal()
        self._trouble = _ABSENT
        right = read_maps(NAMESPACE, NAME, _WITHOUT)
        self._maps: OptionalInformer[ConfigMap] = OptionalInformer(client, CONFIG_MAPS, self._on_map, right, clock)
        self.run = self._maps.run
        self.tried = self._maps.tried
        """Set when the settings are known, or cannot be known for now."""

    def notes(self) -> list[str]:
        """Problems that people should know about."""
        return self._maps.notes() or [self._trouble] * bool(self._trouble and self.tried.is_set())

    def _on_map(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        settings = (new.data or {}) if new is not None else {}
        try:
            self.current = Trust(authorities_of(settings, "client-ca-file"), FrontProxies.of(settings))
        except ValueError as error:
            self._trouble = f"ConfigMap {NAMESPACE}/{NAME}: {error}; the previous settings stay in force"
            _log.error("cannot use new settings for client certificates", why=str(error))
            return
        self._trouble = "" if new is not None else _ABSENT
        _log.info("loaded the CAs of client certificates", config_map=f"{NAMESPACE}/{NAME}")
        self.changed.emit(None)
