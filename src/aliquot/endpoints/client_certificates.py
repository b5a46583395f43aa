"""Client certificates, and the CAs that sign them.

A handshake accepts a certificate of any CA that the port trusts, and Python does not tell which one signed it. So we
verify the chain again, for each request: CAs change while connections stay open, and certificates expire.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)


def _may_sign(_: Policy, __: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("the key of this CA may not sign certificates")


_OF_CAS = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, None)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
)
_OF_CLIENTS = ExtensionPolicy.permit_all()
"""A client certificate of Kubernetes has no subjectAltName, which the strict rules of the web require."""


@dataclass(frozen=True)
class ClientCertificate:
    """The certificate that a peer presented, with the intermediate certificates that it sent."""

    leaf: x509.Certificate
    intermediates: tuple[x509.Certificate, ...] = ()

    @classmethod
    def of_connection(cls, transport: asyncio.BaseTransport) -> Self | None:
        """The peer's certificate. None if it has none, or one that cannot be read."""
        handshake = transport.get_extra_info("ssl_object")
        shown = handshake.getpeercert(binary_form=True) if handshake is not None else None
        if not shown:
            return None
        sent: list[bytes] = getattr(handshake, "get_unverified_chain", list)()  # since Python 3.13
        try:
            others = tuple(x509.load_der_x509_certificate(other) for other in sent if other != shown)
            return cls(x509.load_der_x509_certificate(shown), others)
        except ValueError:
            return None

    @property
    def user(self) -> str:
        return next(iter(self._subject(NameOID.COMMON_NAME)), "")

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self._subject(NameOID.ORGANIZATION_NAME))

    @property
    def dns_names(self) -> list[str]:
        try:
            found = self.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except (x509.ExtensionNotFound, ValueError):
            return []
        return found.value.get_values_for_type(x509.DNSName)

    @property
    def is_for_clients(self) -> bool:
        """Whether it says that it may prove who a client is."""
        try:
            uses = self.leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except (x509.ExtensionNotFound, ValueError):
            return False
        return ExtendedKeyUsageOID.CLIENT_AUTH in uses

    def _subject(self, part: x509.ObjectIdentifier) -> list[str]:
        return [str(named.value) for named in self.leaf.subject.get_attributes_for_oid(part)]


class Authorities:
    """CAs of client certificates. Without any, no certificate is valid."""

    def __init__(self, certificates: Iterable[x509.Certificate] = ()) -> None:
        self._certificates = list(dict.fromkeys(certificates))
        self._store = Store(self._certificates) if self._certificates else None

    @classmethod
    def of(cls, pem: str) -> Self:
        """Raises ValueError if there is no readable certificate."""
        return cls(x509.load_pem_x509_certificates(pem.encode()))

    def pem(self) -> str:
        return "".join(one.public_bytes(Encoding.PEM).decode() for one in self._certificates)

    def vouch_for(self, shown: ClientCertificate, now: datetime) -> bool:
        """Whether one of these CAs signed this certificate for a client, and it is valid now."""
        if self._store is None or not shown.is_for_clients:
            return False
        rules = PolicyBuilder().store(self._store).time(now)
        verifier = rules.extension_policies(ca_policy=_OF_CAS, ee_policy=_OF_CLIENTS).build_client_verifier()
        try:
            verifier.verify(shown.leaf, list(shown.intermediates))
        except VerificationError:
            return False
        return True
