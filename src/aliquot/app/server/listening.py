"""What the configuration means to listeners."""

import ssl
from collections.abc import Callable
from pathlib import Path

from aliquot.config import Configuration
from aliquot.control import ControlPlane
from aliquot.endpoints.forwarding import Forwarder
from aliquot.endpoints.limits import Limits
from aliquot.endpoints.tls import Certificates, Files
from aliquot.model.bounds import MIB

_PASSING_ON = 0.9
"""Of the time for a call, so that it is told of whom there was no answer."""
_LEAST = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


def limits(tree: Configuration) -> Limits:
    given = tree.listen.limits
    return Limits(
        body=given.body_mb * MIB,
        bodies=given.bodies_mb * MIB,
        seconds=given.seconds,
        concurrency=given.concurrency,
        connections=given.connections,
    )


def certificates(tree: Configuration) -> Certificates | None:
    """Those of every port, if there is to be TLS. Raises BadConfig, naming the key and the file."""
    tls = tree.listen.tls
    if not tls.cert_file:
        return None
    least = _LEAST[tls.min_version]
    replicas = tree.replicas
    files = Files(tls.cert_file, tls.key_file, tls.client_ca_file, replicas.ca_file, replicas.token_file, least)
    return Certificates(files)


def forwarder(tree: Configuration, plane: ControlPlane, shown: Certificates | None) -> Forwarder:
    seconds = tree.listen.limits.seconds * _PASSING_ON
    return Forwarder(
        plane, seconds=seconds, certificates=shown, tls_name=tree.replicas.tls_name, token=replica_token(tree)
    )


def replica_token(tree: Configuration) -> Callable[[], str]:
    """What this server shows to others; raises OSError."""
    path = tree.replicas.token_file
    return (lambda: Path(path).read_text().strip()) if path else str
