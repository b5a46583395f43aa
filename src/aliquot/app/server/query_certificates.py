"""Where the query API's certificate comes from: the server makes it, or `listen.tls` has it."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from aliquot import metrics
from aliquot.clock import Clock
from aliquot.config.sections.query_api import QueryApiSection
from aliquot.config.server_tree import ServerConfig
from aliquot.endpoints.client_certificates import Authorities
from aliquot.endpoints.forwarding import Way
from aliquot.endpoints.own_certificates.bundle import Bundle, Terms
from aliquot.endpoints.own_certificates.ca_bundles import CaBundles
from aliquot.endpoints.own_certificates.shared import SharedCertificates
from aliquot.endpoints.query_tls import load_pair
from aliquot.endpoints.tls import Certificates
from aliquot.errors import BadConfig
from aliquot.kube import Client
from aliquot.kube.resources import ServiceReference
from aliquot.plain import why
from aliquot.signals import Signal


@dataclass(frozen=True)
class Served:
    """A certificate with its chain and key, as PEM, and the CAs of replicas and of clients, besides the cluster's."""

    chain: bytes
    key: bytes
    replicas: Authorities
    clients: Authorities = field(default_factory=Authorities)


class QueryCertificates(Protocol):
    changed: Signal[None]
    replica_name: str
    """The name in the certificates of replicas."""
    way: Way | None
    """How to reach this port of another replica. None: as every other port."""

    def served(self) -> Served:
        """What to serve now. Raises BadConfig."""

    async def start(self) -> None:
        """Find the certificate."""

    async def run(self) -> None:
        """Follow it, and make its CA known to the API server."""

    def notes(self) -> list[str]:
        """Problems that people should know about."""


class OwnCertificates:
    """The server makes them, and shares them with its replicas in a Secret."""

    def __init__(self, config: QueryApiSection, client: Client, clock: Clock, least: ssl.TLSVersion) -> None:
        names = (config.host, f"{config.service}.{config.namespace}", "localhost")
        terms = Terms(names, timedelta(days=config.certificate_days))
        self._least = least
        secret = config.secret or config.service
        self._shared = SharedCertificates(client, clock, config.namespace, secret, terms, self._is_known)
        self._known = _ca_bundles(config, client, clock, lambda: self._shared.bundle.trusted())
        self.changed = self._shared.changed
        self.replica_name = config.host
        self.reaching = self._client_context()
        self.way: Way | None = Way(self, config.host)
        self.changed.subscribe(lambda _: self._take())

    def served(self) -> Served:
        bundle = self._shared.bundle
        return Served(bundle.pair.certificate, bundle.pair.key, Authorities.of(bundle.trusted().decode()))

    async def start(self) -> None:
        await self._shared.look()
        self._take()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as following:
            following.create_task(self._shared.run())
            following.create_task(self._known.run())

    def notes(self) -> list[str]:
        return self._shared.notes() + self._known.notes()

    def _take(self) -> None:
        self.reaching = self._client_context()
        metrics.TLS_EXPIRES.set(self._shared.bundle.pair.until.timestamp())
        self._known.look_soon()

    def _client_context(self) -> ssl.SSLContext:
        """Trusts the shared CA, and shows the shared certificate."""
        bundle, context = self._shared.bundle, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = self._least
        context.load_verify_locations(cadata=bundle.trusted().decode())
        load_pair(context, bundle.pair.certificate, bundle.pair.key)
        return context

    async def _is_known(self, bundle: Bundle) -> bool:
        return bundle.next_ca is not None and await self._known.know(bundle.next_ca.certificate)


class GivenCertificates:
    """`listen.tls` has them, and somebody else renews them."""

    def __init__(self, config: ServerConfig, client: Client, clock: Clock, shown: Certificates) -> None:
        self._tls = config.listen.tls
        self._known: CaBundles | None = None
        if config.query_api.ca_file:
            ca_file = Path(config.query_api.ca_file)
            self._known = _ca_bundles(config.query_api, client, clock, lambda: _authorities(ca_file).pem().encode())
        self.changed = shown.changed
        self.replica_name = config.replicas.tls_name
        self.way: Way | None = None

    def served(self) -> Served:
        ca_file = self._tls.client_ca_file
        known = _authorities(Path(ca_file)) if ca_file else Authorities()
        return Served(_read(Path(self._tls.cert_file)), _read(Path(self._tls.key_file)), known, known)

    async def start(self) -> None:
        return

    async def run(self) -> None:
        if self._known is not None:
            await self._known.run()

    def notes(self) -> list[str]:
        return self._known.notes() if self._known is not None else []


def _ca_bundles(config: QueryApiSection, client: Client, clock: Clock, trusted: Callable[[], bytes]) -> CaBundles:
    service = ServiceReference(config.service, config.namespace)
    return CaBundles(client, clock, config.api_services, service, trusted)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadConfig(f"{file}: {why(error)}") from error


def _authorities(file: Path) -> Authorities:
    try:
        return Authorities.of(_read(file).decode())
    except ValueError as error:
        raise BadConfig(f"{file}: the file contains no PEM certificates") from error
