"""Make certificates. The key is ECDSA; CAs that others made may have another one."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aliquot.errors import BadRecord

_CLOCKS_DIFFER = timedelta(hours=1)
"""A new certificate is already valid for a client whose clock is slow."""
_USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""A replica proves with it that it is one, when it forwards a call to the leader."""

_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, both as PEM."""

    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, certificate: bytes, key: bytes) -> Self:
        """The first certificate of a file, and its key. Raises BadRecord if they do not belong together."""
        try:
            first, secret = x509.load_pem_x509_certificate(certificate), _key(key)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise BadRecord(f"no certificate with its key: {error}") from error
        if _public(first.public_key()) != _public(secret.public_key()):
            raise BadRecord("the key does not belong to the certificate")
        return cls(first.public_bytes(Encoding.PEM), key)

    @property
    def since(self) -> datetime:
        """When it was made."""
        return self.valid_from + _CLOCKS_DIFFER

    @property
    def valid_from(self) -> datetime:
        return self._x509().not_valid_before_utc

    @property
    def until(self) -> datetime:
        return until(self.certificate)

    def is_ca(self) -> bool:
        try:
            return self._x509().extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except (x509.ExtensionNotFound, ValueError):
            return False

    def issued(self, other: bytes) -> bool:
        """Whether this CA signed that certificate."""
        try:
            x509.load_pem_x509_certificate(other).verify_directly_issued_by(self._x509())
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def serves(self, names: Iterable[str]) -> bool:
        """Whether it is a certificate for these names, for server and client."""
        try:
            extensions = self._x509().extensions
            known = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except (x509.ExtensionNotFound, ValueError):
            return False
        return set(names) <= set(known.get_values_for_type(x509.DNSName)) and set(_USES) <= set(uses)

    def _x509(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate)


def until(certificate: bytes) -> datetime:
    """When a certificate expires."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def require_certificate(pem: bytes) -> None:
    """Raises BadRecord if it cannot be read."""
    try:
        x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise BadRecord(f"no certificate: {error}") from error


def make_ca(name: str, now: datetime, lifetime: timedelta) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    made = (
        _unsigned(subject, subject, key, now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(made, key)


def issue(ca: KeyPair, names: tuple[str, ...], now: datetime, lifetime: timedelta) -> KeyPair:
    """A certificate for these names, at most as long as the CA is valid. The first one is its common name."""
    key, issuer = ec.generate_private_key(ec.SECP256R1()), x509.load_pem_x509_certificate(ca.certificate)
    made = (
        _unsigned(_named(names[0]), issuer.subject, key, now, min(now + lifetime, ca.until))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_USES), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(_key(ca.key).public_key()), critical=False)
        .sign(_key(ca.key), hashes.SHA256())
    )
    return _pair(made, key)


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _named(name: str) -> x509.Name:
    """X.509 allows 64 characters here; clients look at subjectAltName."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key(pem: bytes) -> _Key:
    """Raises ValueError, TypeError or UnsupportedAlgorithm."""
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, _Key):
        raise ValueError("the key is neither ECDSA nor RSA")
    return key


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _pair(made: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(made.public_bytes(Encoding.PEM), secret)
