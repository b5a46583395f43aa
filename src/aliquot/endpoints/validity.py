"""The validity period of a certificate, read from its file.

Python's ssl reports it only for a verified peer, and an expired certificate cannot be verified. So we skip the few
fields before the dates (RFC 5280, 4.1): Certificate, tbsCertificate, version, serialNumber, signature, issuer,
validity.
"""

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from aliquot.clock import rfc3339

_PEM = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([^-]+)-----END")
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_BEFORE_VALIDITY = 3


@dataclass(frozen=True)
class Validity:
    """Seconds since 1970, both ends inclusive."""

    since: float
    until: float

    def trouble(self, now: float) -> str:
        """Why the certificate is invalid at `now`; empty if it is valid."""
        if now < self.since:
            return f"the certificate is not valid before {_shown(self.since)}"
        return f"the certificate expired at {_shown(self.until)}" if now > self.until else ""

    def expiry(self) -> str:
        return f"the certificate expires at {_shown(self.until)}"


def validity_of(pem: bytes) -> Validity:
    """The validity of the first certificate, which the server presents; its chain follows. Raises ValueError."""
    found = _PEM.search(pem)
    if found is None:
        raise ValueError("no PEM certificate")
    der = base64.b64decode(found[1])
    _, whole, _ = _piece(der, _SEQUENCE)
    _, rest, _ = _piece(whole, _SEQUENCE)
    tag, _, after = _piece(rest)
    if tag == _VERSION:
        rest = after
    for _ in range(_BEFORE_VALIDITY):
        _, _, rest = _piece(rest)
    _, dates, _ = _piece(rest, _SEQUENCE)
    kind, since, rest = _piece(dates)
    return Validity(_moment(kind, since), _moment(*_piece(rest)[:2]))


def _piece(der: bytes, expected: int | None = None) -> tuple[int, bytes, bytes]:
    """The tag and content of the first element, and the bytes after it."""
    if len(der) < 2 or (expected is not None and der[0] != expected):
        raise ValueError("not a DER certificate")
    size, begin = der[1], 2
    if size & 0x80:
        begin += size & 0x7F
        size = int.from_bytes(der[2:begin])
    if len(der) < begin + size:
        raise ValueError("the DER certificate is truncated")
    return der[0], der[begin : begin + size], der[begin + size :]


def _moment(kind: int, text: bytes) -> float:
    digits = text.decode("ascii")
    if kind == _UTC_TIME:
        digits = ("19" if digits >= "50" else "20") + digits
    elif kind != _GENERALIZED_TIME:
        raise ValueError("unknown date type in the certificate")
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _shown(seconds: float) -> str:
    return rfc3339(int(seconds) * 10**9)
