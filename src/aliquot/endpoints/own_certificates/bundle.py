"""The contents of the Secret: CA and certificate, and during a rotation also the next or the former CA.

A new CA is made known to the API server first. Later it signs a certificate. The former CA stays known until the last
certificate that it signed has expired. So at each moment the API server trusts every certificate in use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

from aliquot.endpoints.own_certificates.issuing import KeyPair, issue, make_ca, require_certificate, until
from aliquot.errors import BadRecord

_CA_LIFETIMES = 10
"""A CA is valid for this many lifetimes of a certificate."""
_RENEW_CA_LIFETIMES = 2
_RENEW_SHARE = 1 / 3
"""A certificate is renewed when this share of its lifetime is left."""
SETTLE = timedelta(minutes=10)
"""How long the API server must have known a CA before it signs."""
_NEXT_CA, _NEXT_CA_KEY = "next-ca-cert.pem", "next-ca-key.pem"
_FORMER_CA, _FORMER = "former-ca-cert.pem", "former-cert.pem"
ROTATION_KEYS = frozenset({_NEXT_CA, _NEXT_CA_KEY, _FORMER_CA, _FORMER})
"""Keys that the Secret has only during a rotation."""


@dataclass(frozen=True)
class Terms:
    """What certificates must be like."""

    names: tuple[str, ...]
    lifetime: timedelta


@dataclass(frozen=True)
class Former:
    """A CA that signs no more, and the last certificate that it signed."""

    ca: bytes
    certificate: bytes


@dataclass(frozen=True)
class Bundle:
    ca: KeyPair
    pair: KeyPair
    next_ca: KeyPair | None = None
    former: Former | None = None

    def trusted(self) -> bytes:
        """All CAs that a client must trust, the one that signs first."""
        next_ca = self.next_ca.certificate if self.next_ca is not None else b""
        return self.ca.certificate + next_ca + (self.former.ca if self.former is not None else b"")

    def data(self) -> dict[str, bytes]:
        """The original's keys, and ours. Volumes and Ingresses read `tls.crt` and `tls.key`."""
        own = {"ca-key.pem": self.ca.key, "ca-cert.pem": self.trusted()}
        served = {"key.pem": self.pair.key, "cert.pem": self.pair.certificate}
        copies = {"tls.key": self.pair.key, "tls.crt": self.pair.certificate}
        following = self.next_ca or KeyPair(b"", b"")
        former = self.former or Former(b"", b"")
        rotation = {
            _NEXT_CA_KEY: following.key,
            _NEXT_CA: following.certificate,
            _FORMER_CA: former.ca,
            _FORMER: former.certificate,
        }
        return {**own, **served, **copies, **{key: value for key, value in rotation.items() if value}}

    @classmethod
    def read(cls, data: Mapping[str, bytes]) -> Self:
        """Raises BadRecord."""

        def pair(certificate: str, key: str) -> KeyPair:
            return KeyPair.read(data.get(certificate, b""), data.get(key, b""))

        ca, own = pair("ca-cert.pem", "ca-key.pem"), pair("cert.pem", "key.pem")
        if not ca.is_ca():
            raise BadRecord("ca-cert.pem has no certificate of a CA")
        if not ca.issued(own.certificate):
            raise BadRecord("the CA did not sign the certificate")
        next_ca = pair(_NEXT_CA, _NEXT_CA_KEY) if _NEXT_CA in data else None
        former = Former(data[_FORMER_CA], data.get(_FORMER, b"")) if _FORMER_CA in data else None
        if former is not None:
            require_certificate(former.ca)
            require_certificate(former.certificate)
        return cls(ca, own, next_ca, former)

    def can_sign(self, now: datetime) -> bool:
        """Whether the CA is valid: it can renew an expired certificate. One that a fast clock made is not valid yet."""
        return self.ca.valid_from <= now < self.ca.until

    def wants_to_switch(self, terms: Terms, now: datetime) -> bool:
        """Whether the next CA should sign from now on, if the API server knows it."""
        return self.next_ca is not None and now >= self.next_ca.since + SETTLE and not self.must_switch(terms, now)

    def must_switch(self, terms: Terms, now: datetime) -> bool:
        """Whether the next CA should sign even if the API server does not know it: soon no other can."""
        return self.next_ca is not None and self.ca.until - now < terms.lifetime


def fresh(terms: Terms, now: datetime) -> Bundle:
    ca = _new_ca(terms, now)
    return Bundle(ca, issue(ca, terms.names, now, terms.lifetime))


def renewed(bundle: Bundle, terms: Terms, now: datetime, *, switch: bool) -> Bundle:
    """What should be in the Secret now; the same bundle if nothing is due. `switch`: the next CA signs from now on."""
    if bundle.former is not None and now > until(bundle.former.certificate):
        bundle = replace(bundle, former=None)
    if bundle.next_ca is not None and (switch or bundle.must_switch(terms, now)):
        former = Former(bundle.ca.certificate, bundle.pair.certificate)
        return Bundle(bundle.next_ca, issue(bundle.next_ca, terms.names, now, terms.lifetime), former=former)
    if bundle.next_ca is None and bundle.ca.until - now < _RENEW_CA_LIFETIMES * terms.lifetime:
        bundle = replace(bundle, next_ca=_new_ca(terms, now))
    is_due = bundle.pair.until - now < _RENEW_SHARE * terms.lifetime or bundle.pair.valid_from > now
    if is_due or not bundle.pair.serves(terms.names):
        bundle = replace(bundle, pair=issue(bundle.ca, terms.names, now, terms.lifetime))
    return bundle


def _new_ca(terms: Terms, now: datetime) -> KeyPair:
    return make_ca(f"CA of {now:%Y-%m-%d} for {terms.names[0]}", now, _CA_LIFETIMES * terms.lifetime)
