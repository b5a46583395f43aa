"""Limits, certificates and forwarding as configured, and the URLs that other replicas use."""

import os
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

from aliquot.config.server_tree import ServerConfig
from aliquot.control import ControlPlane
from aliquot.endpoints.forwarding import Forwarder, Way
from aliquot.endpoints.limits import Limits
from aliquot.endpoints.tls import Certificates, Files
from aliquot.model.bounds import MIB

_FORWARDED_SHARE = 0.9
"""Share of a call's time that forwarding may use, so that time is left to say that the holder did not answer."""
_ANY_ADDRESS = ("0.0.0.0", "::", "")
_TLS_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


def limits(config: ServerConfig) -> Limits:
    given = config.listen.limits
    return Limits(
        body=given.body_mb * MIB,
        bodies=given.bodies_mb * MIB,
        seconds=given.seconds,
        concurrency=given.concurrency,
        connections=given.connections,
    )


def least_version(config: ServerConfig) -> ssl.TLSVersion:
    return _TLS_VERSIONS[config.listen.tls.min_version]


def certificates(config: ServerConfig) -> Certificates | None:
    """The certificates for all ports. None without TLS. Raises BadConfig that names the key and the file."""
    tls = config.listen.tls
    if not tls.cert_file:
        return None
    replicas = config.replicas
    files = Files(
        tls.cert_file,
        tls.key_file,
        tls.client_ca_file,
        replicas.ca_file,
        replicas.token_file,
        least_version(config),
    )
    return Certificates(files)


def forwarder(
    config: ServerConfig, plane: ControlPlane, certificates: Certificates | None, others: Mapping[str, Way]
) -> Forwarder:
    """`others` are the endpoints whose ports have TLS of their own."""
    way = Way(certificates, config.replicas.tls_name, replica_token(config))
    return Forwarder(plane, seconds=config.listen.limits.seconds * _FORWARDED_SHARE, way=way, ways=others)


def replica_token(config: ServerConfig) -> Callable[[], str]:
    """Reads the token that this server presents to other replicas; empty without one. Raises OSError."""
    path = config.replicas.token_file
    return (lambda: Path(path).read_text().strip()) if path else str


def advertised_urls(config: ServerConfig, ports: Mapping[str, int]) -> dict[str, str]:
    """The URLs at which other replicas reach this server's endpoints, by endpoint."""
    host = config.replicas.address or os.environ.get("POD_IP", "") or config.listen.address
    if host in _ANY_ADDRESS:
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    secure = ports.keys() if config.listen.tls.cert_file else config.query_api.endpoints
    return {name: f"{'https' if name in secure else 'http'}://{shown}:{port}" for name, port in ports.items()}
